//! Takes one key after the other out of the JSON object: type, range, default, and where each value
//! came from.
//!
//! It knows names and types, not what a key means; rules between keys are with those who read them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::json::{cut, object, shown};
use super::limits::{CORES, KEYS, UNKNOWN_KEYS_TOLD_MAX};
use crate::error::Error;

/// The one key that is an object of keys.
const HEALTH: &str = "store_health";

/// Where a number with fractions may lie.
pub struct Span {
    /// The rule for a person, after "must be".
    pub rule: &'static str,
    /// The rule.
    pub holds: fn(f64) -> bool,
}

/// The keys that were given, and what became of each key so far.
pub struct Reader {
    given: BTreeMap<&'static str, Value>,
    unknown: Vec<String>,
    effective: Map<String, Value>,
}

/// The error for a key whose value breaks a rule.
pub fn wrong(key: &str, value: impl Display, must: impl Display) -> Error {
    Error::invalid(format!("configuration: {key} is {value}, but must be {must}"))
}

impl Reader {
    /// Sorts the keys of `text` into known and unknown ones. A null is as if the key were absent.
    pub fn new(text: &str) -> Result<Reader, Error> {
        let mut reader =
            Reader { given: BTreeMap::new(), unknown: Vec::new(), effective: Map::new() };
        for (key, value) in object(text)? {
            match value {
                Value::Null => {}
                Value::Object(inner) if key == HEALTH => {
                    for (key, value) in inner {
                        reader.sort(&format!("{HEALTH}.{key}"), value);
                    }
                }
                other if key == HEALTH => {
                    return Err(wrong(HEALTH, shown(&other), "an object"));
                }
                // A dot in a key's own name leads nowhere: nesting is by objects only.
                _ if key.contains('.') => reader.unknown.push(key),
                other => reader.sort(&key, other),
            }
        }
        Ok(reader)
    }

    fn sort(&mut self, name: &str, value: Value) {
        if value.is_null() {
            return;
        }
        match KEYS.iter().find(|known| **known == name) {
            Some(known) => {
                self.given.insert(known, value);
            }
            None => self.unknown.push(name.to_string()),
        }
    }

    /// A warning for each unknown key, or the error that the first one is.
    pub fn unknown(&self, strict: bool) -> Result<Vec<String>, Error> {
        let told = self.unknown.iter().take(UNKNOWN_KEYS_TOLD_MAX).map(|key| {
            let nearest = nearest(key);
            // Escaped: a key may hold anything, and a warning must stay one line.
            let key = Value::String(cut(key));
            let place = if nearest.contains('.') { " (in the object store_health)" } else { "" };
            format!("configuration: unknown key {key}; the nearest known key is {nearest}{place}")
        });
        let mut told: Vec<String> = told.collect();
        if strict && let Some(first) = told.first() {
            return Err(Error::invalid(format!("{first}; with strict true this is an error")));
        }
        if self.unknown.len() > told.len() {
            let more = self.unknown.len() - told.len();
            told.push(format!("configuration: {more} more unknown keys"));
        }
        Ok(told)
    }

    /// The value of a key, where it was given.
    pub fn given(&self, key: &str) -> Option<&Value> {
        debug_assert!(KEYS.contains(&key), "{key} is not in KEYS");
        self.given.get(key)
    }

    /// Notes the value that a key has in the end, and why.
    pub fn note(&mut self, key: &str, value: impl Into<Value>, origin: impl Display) {
        let value: Value = value.into();
        self.effective
            .insert(key.to_string(), json!({ "value": value, "origin": origin.to_string() }));
    }

    /// The value of a key that was noted, for a text: as given, or with its origin.
    pub fn shown(&self, key: &str) -> String {
        let Some(entry) = self.effective.get(key) else { return "absent".into() };
        match (entry["origin"].as_str(), self.given(key)) {
            (Some("config") | None, Some(given)) => shown(given),
            (origin, _) => format!("{} ({})", shown(&entry["value"]), origin.unwrap_or_default()),
        }
    }

    /// An integer, where it was given; not noted.
    pub fn optional<T>(&self, key: &str, range: &RangeInclusive<T>) -> Result<Option<T>, Error>
    where
        T: PartialOrd + Display + TryFrom<i128>,
    {
        let Some(value) = self.given(key) else { return Ok(None) };
        match whole(value).and_then(|wide| T::try_from(wide).ok()) {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(wrong(key, shown(value), within(range))),
        }
    }

    /// An integer.
    pub fn whole<T>(&mut self, key: &str, range: RangeInclusive<T>, or: T) -> Result<T, Error>
    where
        T: Copy + PartialOrd + Display + TryFrom<i128> + Into<Value>,
    {
        let given = self.optional(key, &range)?;
        Ok(self.noted(key, given, or))
    }

    /// A number that may have fractions.
    pub fn number(&mut self, key: &str, span: &Span, or: f64) -> Result<f64, Error> {
        let given = match self.given(key) {
            None => None,
            Some(value) => match value.as_f64() {
                Some(number) if (span.holds)(number) => Some(number),
                _ => return Err(wrong(key, shown(value), format!("a number {}", span.rule))),
            },
        };
        Ok(self.noted(key, given, or))
    }

    /// A bool.
    pub fn flag(&mut self, key: &str, or: bool) -> Result<bool, Error> {
        let given = match self.given(key) {
            None => None,
            Some(Value::Bool(flag)) => Some(*flag),
            Some(other) => return Err(wrong(key, shown(other), "true or false")),
        };
        Ok(self.noted(key, given, or))
    }

    /// One of a few words; the first is the default.
    pub fn word<T: Copy, const N: usize>(
        &mut self,
        key: &str,
        words: &[(&str, T); N],
    ) -> Result<T, Error> {
        const { assert!(N > 0, "the first word is the default") };
        let (origin, found) = match self.given(key) {
            None => ("default", Some(words[0])),
            Some(value) => ("config", words.iter().find(|(word, _)| value == *word).copied()),
        };
        if let Some((word, meaning)) = found {
            self.note(key, word, origin);
            return Ok(meaning);
        }
        let all: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let given = self.given(key).map(shown).unwrap_or_default();
        Err(wrong(key, given, format!("one of {}", all.join(", "))))
    }

    /// A list of core numbers.
    pub fn cores(&mut self, key: &str) -> Result<Vec<usize>, Error> {
        let Some(value) = self.given(key) else {
            return Ok(self.noted(key, None, Vec::new()));
        };
        let must = || format!("a list of at most {CORES} integers from 0 to {}", CORES - 1);
        let Some(list) = value.as_array().filter(|list| list.len() <= CORES) else {
            return Err(wrong(key, shown(value), must()));
        };
        let mut cores = Vec::with_capacity(list.len());
        for element in list {
            match whole(element).and_then(|wide| usize::try_from(wide).ok()) {
                Some(core) if core < CORES => cores.push(core),
                _ => {
                    let given = format!("{}, with {}", shown(value), shown(element));
                    return Err(wrong(key, given, must()));
                }
            }
        }
        Ok(self.noted(key, Some(cores), Vec::new()))
    }

    /// The permissions of a file or directory: an octal string or the number that it stands for.
    /// Without the bits of `needed` the store could not use what it makes; that also catches 774
    /// where "0774" is meant.
    pub fn mode(&mut self, key: &str, needed: u32, most: u32, or: u32) -> Result<u32, Error> {
        let given = match self.given(key) {
            None => None,
            Some(value) => {
                let mode = match value {
                    Value::String(text) => octal(text),
                    other => whole(other).and_then(|wide| u32::try_from(wide).ok()),
                };
                match mode {
                    Some(mode) if mode <= most && mode & needed == needed => Some(mode),
                    _ => {
                        let must = format!(
                            "an octal string like \"{or:04o}\" or the integer that it stands for \
                             ({or}), at most \"{most:04o}\", with the owner's bits \"{needed:04o}\""
                        );
                        return Err(wrong(key, shown(value), must));
                    }
                }
            }
        };
        let mode = given.unwrap_or(or);
        let origin = if given.is_some() { "config" } else { "default" };
        self.note(key, format!("{mode:04o}"), origin);
        Ok(mode)
    }

    fn noted<T: Clone + Into<Value>>(&mut self, key: &str, given: Option<T>, or: T) -> T {
        let origin = if given.is_some() { "config" } else { "default" };
        let value = given.unwrap_or(or);
        self.note(key, value.clone(), origin);
        value
    }

    /// Everything that was noted.
    pub fn into_effective(self) -> Value {
        Value::Object(self.effective)
    }
}

fn within<T: Display>(range: &RangeInclusive<T>) -> String {
    format!("an integer from {} to {}", range.start(), range.end())
}

/// The integer that a JSON number is: 8 and 8.0 are, 8.5, "8" and true are not.
fn whole(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    if let Some(unsigned) = number.as_u64() {
        return Some(i128::from(unsigned));
    }
    if let Some(signed) = number.as_i64() {
        return Some(i128::from(signed));
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
    #[expect(clippy::cast_possible_truncation, reason = "saturates, and no range reaches so far")]
    Some(float as i128)
}

fn octal(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    // `from_str_radix` takes a sign too.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    u32::from_str_radix(digits, 8).ok()
}

/// The known key that is most like `key`, by its whole name or by its last part.
fn nearest(key: &str) -> &'static str {
    let key = cut(key).to_lowercase();
    let likeness = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or(name);
        let whole = strsim::normalized_damerau_levenshtein(&key, name);
        whole.max(strsim::normalized_damerau_levenshtein(&key, last))
    };
    let mut best = (KEYS[0], f64::MIN);
    for name in KEYS {
        let score = likeness(name);
        if score > best.1 {
            best = (name, score);
        }
    }
    best.0
}
