//! Settings that override the file: the flags of `serve` and `check`, and environment variables.

use super::environment::{self, EnvironmentSettings, Setting, variable_of};
use super::file::File;
use super::merged::Merged;
use super::mistakes::Mistakes;
use super::paths::Folder;
use super::set;
use super::trace::TraceVariables;
use crate::engine::ENGINES;
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;
use toml::{Table, Value};

/// Settings from one source: the flags of `serve`, or the environment. All are optional, and override the file key
/// by key.
#[derive(Args, Clone, Debug, Default)]
pub struct Overrides {
    /// The engine's address, without or with a trailing /v1
    // If there are any, they replace the list in the file.
    #[arg(long, value_name = "URL")]
    pub upstream: Vec<String>,
    /// Engine name, applied to every upstream.
    #[arg(long, value_name = "NAME", help = engines())]
    pub engine: Option<String>,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// An option of the wire format, such as reasoning_field=reasoning
    // Applied in this order, after the other settings of this source.
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    /// Keys of the file that flags or variables set.
    #[command(flatten)]
    pub keys: EnvironmentSettings,
    /// Trace export settings, which OpenTelemetry's own variables set rather than a flag.
    #[arg(skip)]
    pub trace: TraceVariables,
    /// True if the values come from the environment, so that mistakes name variables instead of flags.
    #[arg(skip)]
    pub is_environment: bool,
}

fn engines() -> String {
    let names: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("What the engine is: {} or {last}", others.join(", "))
}

impl Overrides {
    /// Reads the environment: `SAMEWIRE_<FLAG>`, and `SAMEWIRE_<TABLE>__<KEY>` for any key of the file. Empty
    /// values are ignored.
    pub fn environment() -> (Self, Mistakes) {
        let mut mistakes = Mistakes::default();
        let mut all = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str().filter(|_| !value.is_empty()) else {
                continue;
            };
            match value.to_str() {
                Some(value) => _ = all.insert(name.to_owned(), value.to_owned()),
                None if name.starts_with(environment::PREFIX) => {
                    mistakes.given(name, "must be UTF-8")
                }
                None => {}
            }
        }
        let (this, more) = Self::of_variables(&all);
        mistakes.extend(more);
        (this, mistakes)
    }

    /// Returns the settings of environment variables.
    ///
    /// Unreadable values are mistakes. So are unknown names with the prefix `SAMEWIRE_`, except those that
    /// Kubernetes sets for a service with a name like `samewire`.
    pub fn of_variables(all: &BTreeMap<String, String>) -> (Self, Mistakes) {
        let mut mistakes = Mistakes::default();
        let variable = |name: &str| all.get(name).cloned();
        let list = |name| {
            variable(name).map(|all| all.split(',').map(|one| one.trim().to_owned()).collect())
        };
        let mut this = Self {
            config: variable("SAMEWIRE_CONFIG").map(PathBuf::from),
            upstream: list("SAMEWIRE_UPSTREAM").unwrap_or_default(),
            engine: variable("SAMEWIRE_ENGINE"),
            set: list("SAMEWIRE_SET").unwrap_or_default(),
            trace: TraceVariables::read(variable, &mut mistakes),
            keys: EnvironmentSettings::of_variables(all, &mut mistakes),
            is_environment: true,
        };
        if let Some((name, endpoint)) = &this.trace.endpoint {
            this.keys
                .0
                .insert(0, Setting::new("trace.endpoint", name, endpoint.as_str()));
        }
        (this, mistakes)
    }

    /// Returns the settings with one more: the value of a key that has a flag.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        let flag = File::all_flags().into_iter().find(|flag| flag.key == key);
        let by = flag.map_or_else(|| key.to_owned(), |flag| format!("--{}", flag.name));
        self.keys.0.push(Setting::new(key, &by, value));
        self
    }

    /// Returns the name of a flag, or of the corresponding variable if the values come from the environment.
    fn name(&self, flag: &str) -> String {
        if self.is_environment {
            variable_of(flag)
        } else {
            format!("--{flag}")
        }
    }

    /// Applies these settings over what was read before. `here`: the working directory.
    pub(super) fn apply(&self, merged: &mut Merged, here: &Folder) {
        if !self.upstream.is_empty() {
            merged.replace_upstreams(&self.upstream, &self.name("upstream"));
        }
        if let Some(engine) = &self.engine {
            merged.name_engines(engine, &self.name("engine"));
        }
        self.keys.apply(merged);
        here.resolve(&mut merged.table);
        for assignment in &self.set {
            self.set_option(assignment, merged);
        }
    }

    fn set_option(&self, assignment: &str, merged: &mut Merged) {
        let options = merged
            .table
            .get("wire")
            .cloned()
            .and_then(|wire| wire.try_into().ok());
        match set(&options.unwrap_or_default(), assignment) {
            Ok(options) => {
                let wire = Table::try_from(options).unwrap_or_default();
                merged.table.insert("wire".to_owned(), Value::Table(wire));
            }
            Err((path, why)) => merged
                .mistakes
                .given(path.replacen("--set", &self.name("set"), 1), why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_variables(all: &[(&str, &str)]) -> (Overrides, Mistakes) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Overrides::of_variables(&all.iter().map(owned).collect())
    }

    #[test]
    fn the_environment_names_what_the_flags_name() {
        let (read, mistakes) = from_variables(&[
            ("SAMEWIRE_UPSTREAM", "http://a:1,http://b:2"),
            ("SAMEWIRE_INSECURE_NO_AUTH", "true"),
            ("SAMEWIRE_THREADS", "3"),
            ("SAMEWIRE_ADMIN_HOST", "a,b.c"),
        ]);
        assert_eq!(mistakes, Mistakes::default());
        assert_eq!(read.upstream, ["http://a:1", "http://b:2"]);
        let mut merged = Merged::read(None, "", &Folder::default(), Mistakes::default()).unwrap();
        read.apply(&mut merged, &Folder::default());
        let (file, _, _) = merged.finish();
        assert_eq!(file.admin.hosts, ["a", "b.c"]);
        assert_eq!((file.insecure_no_auth, file.threads), (true, 3));
        let (_, mistakes) = from_variables(&[
            ("SAMEWIRE_THREADS", "maybe"),
            ("SAMEWIRE_INSECURE_NO_AUTH", "ture"),
        ]);
        let told = "SAMEWIRE_INSECURE_NO_AUTH: must be true or false; is true meant?\nSAMEWIRE_THREADS: must be a whole number";
        assert_eq!(mistakes.to_string(), told);
    }
}
