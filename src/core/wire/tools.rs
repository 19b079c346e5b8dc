//! Tools of a request, as far as parsing an answer needs them: the functions' names, and the types of their
//! parameters.

use crate::json::{self, Members, Raw, Text};
use std::borrow::Cow;
use std::collections::HashMap;

/// Depth to which `anyOf`, `oneOf` and `allOf` of a schema are read.
const DEPTH: usize = 4;
/// Number of rounds in which the types of referenced definitions are merged; longer chains stay incomplete.
const REFERENCES: usize = 64;
/// Keys of a schema that hold the definitions for references.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Functions that a model may call. Parsers of call text need them to recognise names and to type arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools(Vec<Tool>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tool {
    name: String,
    parameters: Vec<(String, Types)>,
}

/// Types that a parameter may have according to its schema; none of them if the schema says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Types {
    /// A string, which is quoted in JSON.
    pub string: bool,
    /// An integer, without a fraction.
    pub integer: bool,
    /// Any number, with or without a fraction.
    pub number: bool,
    /// `true` or `false`.
    pub boolean: bool,
    /// `null`.
    pub null: bool,
    /// An object.
    pub object: bool,
    /// A list.
    pub array: bool,
}

impl Types {
    /// Returns true if the schema names no type, or string alone: the value is then taken as text.
    pub fn is_text(self) -> bool {
        self == Self::default()
            || self
                == Self {
                    string: true,
                    ..Self::default()
                }
    }

    fn add(&mut self, word: &str) {
        match word {
            "string" => self.string = true,
            "integer" => self.integer = true,
            "number" => self.number = true,
            "boolean" => self.boolean = true,
            "null" => self.null = true,
            "object" => self.object = true,
            "array" => self.array = true,
            _ => {}
        }
    }

    fn join(&mut self, other: Self) {
        self.string |= other.string;
        self.integer |= other.integer;
        self.number |= other.number;
        self.boolean |= other.boolean;
        self.null |= other.null;
        self.object |= other.object;
        self.array |= other.array;
    }
}

/// Content of one schema: its own types, and the references that may add more.
#[derive(Debug, Default)]
struct Schema {
    types: Types,
    references: Vec<String>,
}

impl Schema {
    fn read(&mut self, schema: &str, depth: usize) {
        let Ok(members) = json::read::<Members<'_>>(schema) else {
            return;
        };
        let is_typed = members.get("type").is_some();
        for (key, value) in &members.0 {
            let value = value.get();
            match &**key {
                "type" if value.starts_with('[') => {
                    let words = json::read::<Vec<Text<'_>>>(value).unwrap_or_default();
                    words
                        .iter()
                        .for_each(|word| self.types.add(&word.decoded()));
                }
                "type" => {
                    if let Ok(word) = json::read::<Text<'_>>(value) {
                        self.types.add(&word.decoded());
                    }
                }
                "anyOf" | "oneOf" | "allOf" if depth < DEPTH => {
                    let all = json::read::<Vec<Raw<'_>>>(value).unwrap_or_default();
                    all.iter().for_each(|one| self.read(one.get(), depth + 1));
                }
                "$ref" => {
                    let reference =
                        json::read::<Text<'_>>(value).map(|text| text.decoded().into_owned());
                    self.references.extend(reference);
                }
                "properties" => self.types.object = true,
                "items" => self.types.array = true,
                // Without `type`, the values tell the types.
                "const" if !is_typed => self.types.add(kind(value)),
                "enum" if !is_typed => {
                    let all = json::read::<Vec<Raw<'_>>>(value).unwrap_or_default();
                    all.iter().for_each(|one| self.types.add(kind(one.get())));
                }
                _ => {}
            }
        }
    }
}

/// Definitions that a tool's schema refers to, with the types of each resolved.
#[derive(Debug, Default)]
struct Definitions<'s> {
    /// Index of each definition, by its reference: `#/$defs/Name`.
    places: HashMap<String, usize>,
    all: Vec<(Types, &'s str)>,
}

impl<'s> Definitions<'s> {
    fn of(schema: &'s str) -> Self {
        let Some(members) = Members::of(schema).filter(|_| schema.contains("\"$ref\"")) else {
            return Self::default();
        };
        let (mut new, mut open) = (Self::default(), Vec::new());
        for place in DEFINITIONS {
            let own = members.get(place).and_then(|own| Members::of(own.get()));
            for (name, text) in own.into_iter().flat_map(|own| own.0) {
                let mut schema = Schema::default();
                schema.read(text.get(), 0);
                let name = name.replace('~', "~0").replace('/', "~1");
                new.places
                    .insert(format!("#/{place}/{name}"), new.all.len());
                new.all.push((schema.types, text.get()));
                open.push(schema.references);
            }
        }
        let place = |reference: &String| new.places.get(reference).copied();
        let edges = open
            .iter()
            .map(|references| references.iter().filter_map(place).collect())
            .collect();
        new.follow(edges);
        new
    }

    /// Adds the types of all definitions that a definition refers to, repeatedly. References may form cycles.
    fn follow(&mut self, edges: Vec<Vec<usize>>) {
        for _ in 0..REFERENCES {
            let mut has_changed = false;
            for (at, edges) in edges.iter().enumerate() {
                let Some((own, _)) = self.all.get(at) else {
                    continue;
                };
                let mut types = *own;
                edges
                    .iter()
                    .filter_map(|to| self.all.get(*to))
                    .for_each(|(other, _)| types.join(*other));
                if let Some((own, _)) = self.all.get_mut(at).filter(|(own, _)| *own != types) {
                    (*own, has_changed) = (types, true);
                }
            }
            if !has_changed {
                break;
            }
        }
    }

    fn get(&self, reference: &str) -> Option<&(Types, &'s str)> {
        self.all.get(*self.places.get(reference)?)
    }

    /// Returns the types that a schema allows, those of its references included.
    fn types(&self, schema: &str) -> Types {
        let mut own = Schema::default();
        own.read(schema, 0);
        let found = own
            .references
            .iter()
            .filter_map(|reference| self.get(reference));
        found.for_each(|(types, _)| own.types.join(*types));
        own.types
    }

    /// Returns the members of a schema, or those of the definition that it refers to.
    fn members(&self, schema: &'s str) -> Option<Members<'s>> {
        let mut members = Members::of(schema)?;
        for _ in 0..DEPTH {
            let reference = members
                .get("$ref")
                .and_then(Text::of)
                .map(|text| text.decoded());
            let Some((_, text)) = reference.and_then(|reference| self.get(&reference)) else {
                break;
            };
            members = Members::of(text)?;
        }
        Some(members)
    }
}

/// Returns the JSON type of a value, by its first byte.
fn kind(json: &str) -> &'static str {
    match json.bytes().next() {
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        Some(b'{') => "object",
        Some(b'[') => "array",
        _ => "number",
    }
}

impl Tools {
    /// Reads the `tools` of a chat request, as JSON. Unreadable tools are skipped, because the engine reports what
    /// is wrong with them.
    pub fn read(tools: &str) -> Self {
        let all = json::read::<Vec<Raw<'_>>>(tools).unwrap_or_default();
        Self(
            all.iter()
                .filter_map(|tool| Tool::read(tool.get()))
                .collect(),
        )
    }

    /// Returns the names of the functions in the `tools` of a chat request, without a look at their parameters.
    pub fn names_in(tools: &str) -> Vec<String> {
        // An error of the reader would cost an allocation in every request without tools.
        let all = if tools.is_empty() {
            Vec::new()
        } else {
            json::read::<Vec<Raw<'_>>>(tools).unwrap_or_default()
        };
        all.iter()
            .filter_map(|tool| json::member(function(tool.get()), "name"))
            .collect()
    }

    /// Returns true if the request offers no function.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if there is a function of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|tool| tool.name == name)
    }

    /// Returns the names of all functions, in the order of the request.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|tool| &*tool.name)
    }

    /// Returns the name of the function if there is exactly one.
    pub fn only(&self) -> Option<&str> {
        match self.0.as_slice() {
            [one] => Some(&one.name),
            _ => None,
        }
    }

    /// Returns true if a function may have a parameter of this name, because its schema lists it or lists none.
    pub fn may_have(&self, function: &str, parameter: &str) -> bool {
        let tool = self.0.iter().find(|tool| tool.name == function);
        tool.is_none_or(|tool| {
            tool.parameters.is_empty() || tool.parameters.iter().any(|(name, _)| name == parameter)
        })
    }

    /// Returns the types that a parameter of a function may have; none if function or parameter is unknown.
    pub fn types(&self, function: &str, parameter: &str) -> Types {
        let tool = self.0.iter().find(|tool| tool.name == function);
        let known =
            tool.and_then(|tool| tool.parameters.iter().find(|(name, _)| name == parameter));
        known.map(|(_, types)| *types).unwrap_or_default()
    }
}

/// Returns the function in a tool of `tools`; an entry of the older `functions` is one itself.
fn function(tool: &str) -> &str {
    json::raw_member(tool, "function").map_or(tool, Raw::get)
}

impl Tool {
    fn read(tool: &str) -> Option<Self> {
        let function = function(tool);
        let name = json::member(function, "name")?;
        let schema = json::raw_member(function, "parameters").map_or("", Raw::get);
        let definitions = Definitions::of(schema);
        let properties = definitions
            .members(schema)
            .and_then(|members| members.get("properties"));
        let properties = properties
            .and_then(|all| Members::of(all.get()))
            .unwrap_or_default();
        let parameter = |(key, schema): &(Cow<'_, str>, Raw<'_>)| {
            (key.to_string(), definitions.types(schema.get()))
        };
        let parameters = properties.0.iter().map(parameter).collect();
        Some(Self { name, parameters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schema with 100,000 parameters that refer to 64 definitions, all of which refer to each other.
    #[test]
    fn references_cost_no_more_than_they_are_long() {
        let names: Vec<_> = (0..64)
            .map(|at| format!("{}{at}", "n".repeat(500)))
            .collect();
        let all = names.iter().map(String::as_str).chain(["t"]);
        let all: Vec<_> = all
            .map(|name| format!(r##"{{"$ref":"#/$defs/{name}"}}"##))
            .collect();
        let all = all.join(",");
        let each: Vec<_> = names
            .iter()
            .map(|name| format!(r#""{name}":{{"anyOf":[{all}]}}"#))
            .collect();
        let parameters: Vec<_> = (0..100_000)
            .map(|at| format!(r##""p{at}":{{"$ref":"#/$defs/s"}}"##))
            .collect();
        let tools = format!(
            r##"[{{"function":{{"name":"f","parameters":{{"properties":{{{}}},
                "$defs":{{"s":{{"$ref":"#/$defs/{}"}},"t":{{"type":"null"}},{}}}}}}}}}]"##,
            parameters.join(","),
            names[0],
            each.join(",")
        );
        let seconds = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
        };
        let start = seconds();
        let tools = Tools::read(&tools);
        assert_eq!(
            tools.types("f", "p99999"),
            Types {
                null: true,
                ..Types::default()
            }
        );
        assert!(
            seconds() - start < 10.0,
            "{} s of the processor",
            seconds() - start
        );
    }

    #[test]
    fn references_go_round_in_circles() {
        let many: Vec<_> = (0..500)
            .map(|at| format!(r##""D{at}":{{"$ref":"#/$defs/D{}"}}"##, at + 1))
            .collect();
        let tools = format!(
            r##"[{{"function":{{"name":"f","parameters":{{"properties":{{
                "a":{{"$ref":"#/$defs/A"}},"far":{{"$ref":"#/$defs/D0"}}}},
                "$defs":{{"A":{{"anyOf":[{{"$ref":"#/$defs/A"}},{{"$ref":"#/$defs/B"}}]}},
                "B":{{"type":"null","allOf":[{{"$ref":"#/$defs/A"}},{{"const":{{}}}}]}},{}}}}}}}}}]"##,
            many.join(",")
        );
        let tools = Tools::read(&tools);
        assert_eq!(
            tools.types("f", "a"),
            Types {
                null: true,
                object: true,
                ..Types::default()
            }
        );
        assert_eq!(tools.types("f", "far"), Types::default());
    }

    #[test]
    fn types_of_parameters() {
        let tools = Tools::read(
            r#"[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{
                "a":{"type":"integer"},"b":{"type":["string","null"]},"c":{"anyOf":[{"type":"number"},{"type":"boolean"}]},
                "d":{"items":{}},"e":{},"g":{"enum":[1,"x"]},"h":{"type":"string"}}}}},
              {"type":"function","function":{"name":"g"}},{"type":"x"}]"#,
        );
        assert!(
            tools.contains("f")
                && tools.contains("g")
                && !tools.contains("h")
                && tools.only().is_none()
        );
        let none = Types::default();
        for (key, types) in [
            (
                "a",
                Types {
                    integer: true,
                    ..none
                },
            ),
            (
                "b",
                Types {
                    string: true,
                    null: true,
                    ..none
                },
            ),
            (
                "c",
                Types {
                    number: true,
                    boolean: true,
                    ..none
                },
            ),
            (
                "d",
                Types {
                    array: true,
                    ..none
                },
            ),
            ("e", none),
            (
                "g",
                Types {
                    number: true,
                    string: true,
                    ..none
                },
            ),
            ("zz", none),
        ] {
            assert_eq!(tools.types("f", key), types, "{key}");
        }
        assert!(tools.types("f", "h").is_text() && tools.types("f", "e").is_text());
        assert!(Tools::read("no JSON").is_empty());
    }

    #[test]
    fn types_by_what_a_schema_says() {
        let nested = |levels: usize| {
            (0..levels).fold(r#"{"type":"null"}"#.to_owned(), |inner, _| {
                format!(r#"{{"anyOf":[{inner}]}}"#)
            })
        };
        let none = Types::default();
        let object = Types {
            object: true,
            ..none
        };
        let definitions = r##""$defs":{"S":{"type":"string"},"I":{"type":"integer"},"N":{"type":"number"},"L":{"type":"array"},"B":{"type":"boolean"}}"##;
        let both = |a: char, b: char| {
            format!(r##"{{"anyOf":[{{"$ref":"#/$defs/{a}"}},{{"$ref":"#/$defs/{b}"}}]}}"##)
        };
        for (schema, expected) in [
            (r#"{"properties":{}}"#.to_owned(), object),
            // The type outranks what a constant would tell.
            (
                r#"{"type":"string","const":1}"#.to_owned(),
                Types {
                    string: true,
                    ..none
                },
            ),
            (
                r#"{"type":"string","enum":[1]}"#.to_owned(),
                Types {
                    string: true,
                    ..none
                },
            ),
            (
                r#"{"const":1}"#.to_owned(),
                Types {
                    number: true,
                    ..none
                },
            ),
            (nested(4), Types { null: true, ..none }),
            (nested(5), none),
            // Types of several references add up, whichever comes first.
            (
                both('S', 'I'),
                Types {
                    string: true,
                    integer: true,
                    ..none
                },
            ),
            (
                both('I', 'S'),
                Types {
                    string: true,
                    integer: true,
                    ..none
                },
            ),
            (
                both('N', 'L'),
                Types {
                    number: true,
                    array: true,
                    ..none
                },
            ),
            (
                both('L', 'N'),
                Types {
                    number: true,
                    array: true,
                    ..none
                },
            ),
            (
                both('B', 'I'),
                Types {
                    boolean: true,
                    integer: true,
                    ..none
                },
            ),
            (
                both('I', 'B'),
                Types {
                    boolean: true,
                    integer: true,
                    ..none
                },
            ),
        ] {
            let tools = format!(
                r#"[{{"function":{{"name":"f","parameters":{{"properties":{{"a":{schema}}},{definitions}}}}}}}]"#
            );
            assert_eq!(Tools::read(&tools).types("f", "a"), expected, "{schema}");
        }
    }

    #[test]
    fn the_only_function() {
        let function = |name: &str| format!(r#"{{"function":{{"name":"{name}"}}}}"#);
        assert_eq!(
            Tools::read(&format!("[{}]", function("f"))).only(),
            Some("f")
        );
        assert_eq!(
            Tools::read(&format!("[{},{}]", function("f"), function("g"))).only(),
            None
        );
        assert_eq!(Tools::read("[]").only(), None);
    }
}
