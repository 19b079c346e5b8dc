//! Imports between the files of `src`, read with `syn`. A file imports another one if it names an item that is
//! defined there, in a `use`, in a path or in a macro; a re-export counts as its origin. A child may name its
//! ancestors, as they name it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Macro, Type, UseTree};

type Names = Vec<String>;

/// Module of one file: its items, the types to which it adds methods, its imports by the names they have here, and every
/// path that its code names.
#[derive(Default)]
struct Module {
    items: HashSet<String>,
    extends: HashSet<String>,
    uses: Vec<(String, Names)>,
    paths: BTreeSet<Names>,
}

/// Returns the imports of files that are part of a cycle, as `a -> b (path)`; empty if there is no cycle.
pub(crate) fn cyclic_files(root: &Path) -> Vec<String> {
    let modules = modules(root);
    let edges = imports(&modules);
    assert!(
        edges.len() > modules.len(),
        "{} imports in {} files",
        edges.len(),
        modules.len()
    );
    cyclic(edges)
}

/// Returns the same for modules beside each other: one imports another if any of its files does.
pub(crate) fn cyclic_modules(root: &Path) -> Vec<String> {
    let mut edges = BTreeMap::new();
    for ((from, to), path) in imports(&modules(root)) {
        let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        if from.len() > shared && to.len() > shared {
            edges.insert((from[..=shared].to_vec(), to[..=shared].to_vec()), path);
        }
    }
    cyclic(edges)
}

/// Returns the files that add methods to a type outside of the module that defines it, as `file: type`.
pub(crate) fn extensions(root: &Path) -> Vec<String> {
    let modules = modules(root);
    let mut found = Vec::new();
    for (name, module) in &modules {
        // A type that is neither imported nor found is made by a macro here.
        let imported = |extended: &&String| {
            module
                .uses
                .iter()
                .any(|(known_as, _)| known_as == *extended)
        };
        for extended in module.extends.iter().filter(imported) {
            let homes: Vec<_> = modules
                .iter()
                .filter(|(_, home)| home.items.contains(extended))
                .map(|(home, _)| home)
                .collect();
            if !homes.is_empty() && homes.iter().all(|home| !name.starts_with(home)) {
                found.push(format!("{}: {extended}", name.join("/")));
            }
        }
    }
    found
}

fn modules(root: &Path) -> BTreeMap<Names, Module> {
    let roots = ["main.rs", "core/lib.rs"].map(Path::new);
    let files = super::files(root)
        .into_iter()
        .filter(|path| !roots.contains(&path.as_path()));
    files
        .map(|path| {
            (
                name_of(&path),
                read(&std::fs::read_to_string(root.join(&path)).unwrap()),
            )
        })
        .collect()
}

/// Keeps the edges that are part of a cycle.
fn cyclic(mut edges: BTreeMap<(Names, Names), String>) -> Vec<String> {
    // A node that no other imports, or that imports none, is in no cycle.
    loop {
        let (from, to): (HashSet<_>, HashSet<_>) = edges
            .keys()
            .map(|(from, to)| (from.clone(), to.clone()))
            .unzip();
        let before = edges.len();
        edges.retain(|(a, b), _| to.contains(a) && from.contains(b));
        if edges.len() == before {
            break;
        }
    }
    edges
        .iter()
        .map(|((a, b), path)| format!("{} -> {} ({path})", a.join("/"), b.join("/")))
        .collect()
}

/// Returns the module path of a file of `src`. The modules of the crate `src/core` have the same paths in both crates.
fn name_of(path: &Path) -> Names {
    let path = path.strip_prefix("core").unwrap_or(path);
    let mut names: Names = path
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_str().unwrap().to_owned())
        .collect();
    if names.last().is_some_and(|last| last == "mod") || names == ["lib"] {
        names.pop();
    }
    names
}

fn read(text: &str) -> Module {
    let mut module = Module::default();
    let file = syn::parse_file(text).unwrap();
    for item in &file.items {
        match item {
            Item::Const(item) => module.items.insert(item.ident.to_string()),
            Item::Enum(item) => module.items.insert(item.ident.to_string()),
            Item::Fn(item) => module.items.insert(item.sig.ident.to_string()),
            Item::Static(item) => module.items.insert(item.ident.to_string()),
            Item::Struct(item) => module.items.insert(item.ident.to_string()),
            Item::Trait(item) => module.items.insert(item.ident.to_string()),
            Item::Type(item) => module.items.insert(item.ident.to_string()),
            Item::Impl(item) if item.trait_.is_none() => match &*item.self_ty {
                Type::Path(path) => module
                    .extends
                    .insert(path.path.segments[0].ident.to_string()),
                _ => false,
            },
            _ => false,
        };
        module.visit_item(item);
    }
    module
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .meta
                .require_list()
                .is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

impl<'a> Visit<'a> for Module {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let mut found = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut found);
        self.paths
            .extend(found.iter().map(|(_, path)| path.clone()));
        self.uses.extend(found);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if names.len() > 1 {
            self.paths.insert(names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'a Macro) {
        let text = called
            .tokens
            .to_string()
            .replace(" :: ", "::")
            .replace(":: ", "::");
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let paths = words
            .filter(|word| word.contains("::"))
            .map(|word| word.split("::").map(str::to_owned).collect());
        self.paths.extend(paths);
        visit::visit_macro(self, called);
    }
}

/// Lists the imports of a `use`, each by the name that it has in the file.
fn flatten(tree: &UseTree, before: &mut Names, found: &mut Vec<(String, Names)>) {
    let mut add = |name: &syn::Ident, known_as: &syn::Ident| {
        let is_self = name == "self";
        let path: Names = before
            .iter()
            .cloned()
            .chain((!is_self).then(|| name.to_string()))
            .collect();
        let known_as = if is_self {
            before.last().cloned().unwrap_or_default()
        } else {
            known_as.to_string()
        };
        found.push((known_as, path));
    };
    match tree {
        UseTree::Name(name) => add(&name.ident, &name.ident),
        UseTree::Rename(name) => add(&name.ident, &name.rename),
        UseTree::Glob(_) => found.push((String::new(), before.clone())),
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| flatten(tree, before, found)),
    }
}

/// Returns each import of a file by another one, with a path that makes it.
fn imports(modules: &BTreeMap<Names, Module>) -> BTreeMap<(Names, Names), String> {
    let mut edges = BTreeMap::new();
    for (name, module) in modules {
        for path in &module.paths {
            let through = module
                .uses
                .iter()
                .find(|(known_as, _)| path.len() > 1 && path.first() == Some(known_as));
            let long = through
                .map(|(_, start)| start.iter().chain(&path[1..]).cloned().collect::<Names>());
            let target = absolute(modules, name, long.as_ref().unwrap_or(path));
            let target = target.and_then(|target| origin(modules, &target, 0));
            if let Some(target) = target.filter(|target| !name.starts_with(target)) {
                edges
                    .entry((name.clone(), target))
                    .or_insert_with(|| path.join("::"));
            }
        }
    }
    edges
}

/// Returns a path from the crate's root; `None` if it leads out of the crate.
fn absolute(modules: &BTreeMap<Names, Module>, module: &Names, path: &[String]) -> Option<Names> {
    let mut base = module.clone();
    let mut rest = path;
    match rest.first().map(String::as_str) {
        Some("crate") => (base, rest) = (Vec::new(), &rest[1..]),
        Some("self") => rest = &rest[1..],
        Some("super") => {
            while rest.first().is_some_and(|first| first == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        Some(first) => {
            let child: Names = base.iter().cloned().chain([first.to_owned()]).collect();
            modules.get(&child)?;
        }
        None => return None,
    }
    Some(base.into_iter().chain(rest.iter().cloned()).collect())
}

/// Returns the module that defines the item at this path, through re-exports.
fn origin(modules: &BTreeMap<Names, Module>, path: &Names, depth: usize) -> Option<Names> {
    let length = (0..=path.len())
        .rev()
        .find(|length| modules.contains_key(&path[..*length]))?;
    let name = path[..length].to_vec();
    let (module, item) = (&modules[&name], path.get(length));
    let Some(item) = item.filter(|item| !module.items.contains(*item)) else {
        return Some(name);
    };
    let again = module.uses.iter().find(|(known_as, _)| known_as == item);
    let again = again
        .filter(|_| depth < 8)
        .and_then(|(_, path)| absolute(modules, &name, path));
    again
        .and_then(|path| origin(modules, &path, depth + 1))
        .or(Some(name))
}
