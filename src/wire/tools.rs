//! The tools of a request, as far as reading an answer needs them: their names, and the types of their parameters.

use crate::json::{self, Members, Raw, Text};

/// Levels of a schema that are looked into.
const DEPTH: usize = 4;

/// All functions that may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools(Vec<Tool>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tool {
    name: String,
    parameters: Vec<(String, Types)>,
}

/// What a parameter may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Types {
    /// A text.
    pub string: bool,
    /// A whole number.
    pub integer: bool,
    /// A number.
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
    /// Nothing is said of it, or all that is said is that it is a text.
    pub fn is_text(self) -> bool {
        self == Self::default() || self == Self { string: true, ..Self::default() }
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

    fn read(&mut self, schema: &str, depth: usize) {
        let Ok(members) = json::read::<Members<'_>>(schema) else { return };
        for (key, value) in &members.0 {
            let value = value.get();
            match &**key {
                "type" if value.starts_with('[') => {
                    let words = json::read::<Vec<Text<'_>>>(value).unwrap_or_default();
                    words.iter().for_each(|word| self.add(&word.decoded()));
                }
                "type" => {
                    if let Ok(word) = json::read::<Text<'_>>(value) {
                        self.add(&word.decoded());
                    }
                }
                "anyOf" | "oneOf" | "allOf" if depth < DEPTH => {
                    let all = json::read::<Vec<Raw<'_>>>(value).unwrap_or_default();
                    all.iter().for_each(|one| self.read(one.get(), depth + 1));
                }
                "properties" => self.object = true,
                "items" => self.array = true,
                "enum" => {
                    let all = json::read::<Vec<Raw<'_>>>(value).unwrap_or_default();
                    all.iter().for_each(|one| self.add(kind(one.get())));
                }
                _ => {}
            }
        }
    }
}

/// What a JSON value is.
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
    /// Those of a chat request's `tools`, as JSON. What cannot be read is left out: the engine says what is wrong with it.
    pub fn read(tools: &str) -> Self {
        let all = json::read::<Vec<Raw<'_>>>(tools).unwrap_or_default();
        Self(all.iter().filter_map(|tool| Tool::read(tool.get())).collect())
    }

    /// Nothing can be called.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is a function of this name.
    pub fn know(&self, name: &str) -> bool {
        self.0.iter().any(|tool| tool.name == name)
    }

    /// The name of the only one.
    pub fn only(&self) -> Option<&str> {
        match self.0.as_slice() {
            [one] => Some(&one.name),
            _ => None,
        }
    }

    /// What a parameter of a function may be.
    pub fn types(&self, function: &str, parameter: &str) -> Types {
        let tool = self.0.iter().find(|tool| tool.name == function);
        let known = tool.and_then(|tool| tool.parameters.iter().find(|(name, _)| name == parameter));
        known.map(|(_, types)| *types).unwrap_or_default()
    }
}

impl Tool {
    fn read(tool: &str) -> Option<Self> {
        let member = |text: &str, key: &str| -> Option<String> {
            let members = json::read::<Members<'_>>(text).ok()?;
            members.0.iter().find(|(name, _)| &**name == key).map(|(_, value)| value.get().to_owned())
        };
        let function = member(tool, "function").unwrap_or_else(|| tool.to_owned());
        let name = json::read::<Text<'_>>(&member(&function, "name")?).ok()?.decoded().into_owned();
        let properties = member(&function, "parameters").and_then(|schema| member(&schema, "properties"));
        let mut parameters = Vec::new();
        if let Some(Ok(members)) = properties.as_deref().map(json::read::<Members<'_>>) {
            for (key, schema) in &members.0 {
                let mut types = Types::default();
                types.read(schema.get(), 0);
                parameters.push((key.to_string(), types));
            }
        }
        Some(Self { name, parameters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_parameters() {
        let tools = Tools::read(
            r#"[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{
                "a":{"type":"integer"},"b":{"type":["string","null"]},"c":{"anyOf":[{"type":"number"},{"type":"boolean"}]},
                "d":{"items":{}},"e":{},"g":{"enum":[1,"x"]},"h":{"type":"string"}}}}},
              {"type":"function","function":{"name":"g"}},{"type":"x"}]"#,
        );
        assert!(tools.know("f") && tools.know("g") && !tools.know("h") && tools.only().is_none());
        let none = Types::default();
        for (key, types) in [
            ("a", Types { integer: true, ..none }),
            ("b", Types { string: true, null: true, ..none }),
            ("c", Types { number: true, boolean: true, ..none }),
            ("d", Types { array: true, ..none }),
            ("e", none),
            ("g", Types { number: true, string: true, ..none }),
            ("zz", none),
        ] {
            assert_eq!(tools.types("f", key), types, "{key}");
        }
        assert!(tools.types("f", "h").is_text() && tools.types("f", "e").is_text());
        assert!(Tools::read("no JSON").is_empty());
    }
}
