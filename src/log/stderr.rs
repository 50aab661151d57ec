//! Lines on stderr, for processes without a callback.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Level;

const VARIABLE: &str = "KVPATH_LOG";

/// The level that `KVPATH_LOG` asks for: `warn` where it is not set or no level's word, nothing
/// where it is `off`.
pub fn level_from_environment() -> Option<Level> {
    match std::env::var(VARIABLE) {
        Ok(word) if word == "off" => None,
        Ok(word) => Level::ALL.into_iter().find(|level| level.word() == word).or(Some(Level::Warn)),
        Err(_) => Some(Level::Warn),
    }
}

/// One line. Control characters are escaped, so a message cannot look like two.
pub fn line(at: SystemTime, level: Level, id: &str, text: &str) -> String {
    let mut line = format!("{} kvpath {} {id} ", utc(at), level.word());
    for letter in text.chars() {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line.push('\n');
    line
}

/// Writes a line in one piece. Nobody is left to be told when stderr itself fails.
pub fn write(line: &str) {
    match std::io::stderr().write_all(line.as_bytes()) {
        Ok(()) | Err(_) => {}
    }
}

/// A moment as `2026-01-31T23:59:59.123Z`.
pub fn utc(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a number of days since 1970. Years are taken to begin in March, so that
/// the leap day is the last day of a year and months have a regular pattern of lengths.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    const DAYS_FROM_MARCH_0000: u64 = 719_468;
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let days = days_since_1970 + DAYS_FROM_MARCH_0000;
    let (era, day) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day + 2) / 153;
    let day = day - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}
