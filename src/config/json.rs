//! Text to JSON object, with the one check that `serde_json::Value` cannot do afterwards: a key
//! that is given twice is an error at any depth (R2).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};

use super::limits::{SHOWN_CHARS_MAX, TEXT_BYTES_MAX};
use crate::error::Error;

/// `text` cut to what a message can show.
pub fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// A value as it was given, cut when long.
pub fn shown(value: &Value) -> String {
    cut(&value.to_string())
}

/// The object that `text` is.
pub fn object(text: &str) -> Result<Map<String, Value>, Error> {
    if text.len() > TEXT_BYTES_MAX {
        let have = text.len();
        return Err(Error::invalid(format!(
            "configuration: {have} bytes long, but may have at most {TEXT_BYTES_MAX}"
        )));
    }
    if text.trim().is_empty() {
        return Err(Error::invalid("the configuration is empty, but must be a JSON object"));
    }
    let mut source = serde_json::Deserializer::from_str(text);
    let value = Node { path: "" }
        .deserialize(&mut source)
        .and_then(|value| source.end().map(|()| value))
        .map_err(|error| match error.classify() {
            Category::Data => Error::invalid(format!("configuration: {error}")),
            Category::Syntax | Category::Eof | Category::Io => {
                Error::invalid(format!("configuration: not valid JSON: {error}"))
            }
        })?;
    match value {
        Value::Object(object) => Ok(object),
        other => {
            let given = shown(&other);
            Err(Error::invalid(format!("the configuration is {given}, but must be a JSON object")))
        }
    }
}

/// One value at `path`, the key as texts name it. serde_json bounds how deep these nest.
struct Node<'a> {
    path: &'a str,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value);
        number.map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(Node { path: self.path })? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = pairs.next_key::<String>()? {
            // Escaped and cut: a key may hold anything, and a text must stay one short line.
            let quoted = Value::String(cut(&key)).to_string();
            let name = quoted.trim_matches('"');
            let path = match self.path {
                "" => name.to_string(),
                above => format!("{above}.{name}"),
            };
            let value = pairs.next_value_seed(Node { path: &path })?;
            if let Some(first) = object.get(&key) {
                let (first, second) = (shown(first), shown(&value));
                return Err(A::Error::custom(format!(
                    "{path} is {first} and {second}, but a key may be given only once"
                )));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}
