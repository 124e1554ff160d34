//! What a run found: counts, rates, errors by code, latencies; as a table or as JSON.

use apogee_protocol::ResponseCode;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies above this many microseconds count as this many.
const LONGEST_US: u64 = 600_000_000;

/// Latencies in microseconds.
pub(crate) type Latencies = Histogram<u64>;

/// An empty collection of latencies, exact to three digits.
pub(crate) fn latencies() -> Result<Latencies, String> {
    Histogram::new_with_bounds(1, LONGEST_US, 3).map_err(|error| error.to_string())
}

/// Refusals and losses by name, each with one text as example.
#[derive(Debug, Clone, Default)]
pub(crate) struct Errors(BTreeMap<String, (u64, String)>);

impl Errors {
    pub(crate) fn refused(&mut self, code: i32, remark: Option<&str>) {
        let name = ResponseCode(code).name().map_or_else(|| format!("code {code}"), str::to_owned);
        self.add(&name, 1, remark.unwrap_or_default());
    }

    pub(crate) fn add(&mut self, name: &str, count: u64, example: &str) {
        if count > 0 {
            let entry = self.0.entry(name.to_owned()).or_insert((0, example.to_owned()));
            entry.0 += count;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (name, (count, example)) in &other.0 {
            self.add(name, *count, example);
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.values().map(|(count, _)| count).sum()
    }
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) bench: &'static str,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    pub(crate) errors: Errors,
    /// Name of the measure, and the measure; the first one is `latency_us`.
    pub(crate) latencies: Vec<(&'static str, Latencies)>,
    /// The settings of the run, as they were.
    pub(crate) settings: Map<String, Value>,
}

impl Report {
    fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64().max(1e-9)
    }

    /// One JSON object.
    pub(crate) fn to_json(&self) -> String {
        let mut object = Map::new();
        object.insert("bench".to_owned(), json!(self.bench));
        object.insert("messages".to_owned(), json!(self.messages));
        object.insert("seconds".to_owned(), json!(round(self.seconds(), 6)));
        object.insert("rate".to_owned(), json!(round(self.messages as f64 / self.seconds(), 1)));
        object.insert("bytes".to_owned(), json!(self.bytes));
        object.insert("errors".to_owned(), json!(self.errors.total()));
        let by_code: Map<String, Value> = self
            .errors
            .0
            .iter()
            .map(|(name, (count, text))| (name.clone(), json!({"count": count, "example": text})))
            .collect();
        object.insert("errors_by_code".to_owned(), Value::Object(by_code));
        for (name, latencies) in &self.latencies {
            object.insert((*name).to_owned(), percentiles(latencies));
        }
        object.insert("settings".to_owned(), Value::Object(self.settings.clone()));
        Value::Object(object).to_string()
    }

    /// A table for people.
    pub(crate) fn to_table(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
        let rate = self.messages as f64 / self.seconds();
        table.set_header(vec![self.bench.to_owned(), String::new()]);
        table.add_row(vec!["messages".to_owned(), self.messages.to_string()]);
        table.add_row(vec!["seconds".to_owned(), format!("{:.3}", self.seconds())]);
        table.add_row(vec!["messages/s".to_owned(), format!("{rate:.0}")]);
        let mib = self.bytes as f64 / self.seconds() / 1_048_576.0;
        table.add_row(vec!["MiB/s (bodies or records)".to_owned(), format!("{mib:.1}")]);
        for (name, latencies) in &self.latencies {
            let ms = |micros: u64| format!("{:.3}", micros as f64 / 1000.0);
            let at = |quantile| ms(latencies.value_at_quantile(quantile));
            let text = format!(
                "p50 {}  p99 {}  p99.9 {}  max {}",
                at(0.5),
                at(0.99),
                at(0.999),
                ms(latencies.max())
            );
            table.add_row(vec![name.replace("_us", " (ms)").replace('_', " "), text]);
        }
        table.add_row(vec!["errors".to_owned(), self.errors.total().to_string()]);
        for (name, (count, example)) in &self.errors.0 {
            table.add_row(vec![format!("  {name}"), format!("{count}  {example}")]);
        }
        table.to_string()
    }
}

fn percentiles(latencies: &Latencies) -> Value {
    json!({
        "p50": latencies.value_at_quantile(0.5),
        "p99": latencies.value_at_quantile(0.99),
        "p999": latencies.value_at_quantile(0.999),
        "max": latencies.max(),
        "mean": round(latencies.mean(), 1),
        "count": latencies.len(),
    })
}

fn round(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_table_name_counts_errors_and_latencies() {
        let mut errors = Errors::default();
        errors.refused(2, Some("too many requests"));
        errors.refused(2, None);
        errors.add("connection lost", 3, "reset");
        let mut latency = latencies().unwrap();
        latency.saturating_record(1500);
        let report = Report {
            bench: "produce",
            messages: 100,
            bytes: 1000,
            elapsed: Duration::from_secs(2),
            errors,
            latencies: vec![("latency_us", latency)],
            settings: Map::new(),
        };
        let json: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!((json["rate"].as_f64(), json["errors"].as_u64()), (Some(50.0), Some(5)));
        assert_eq!(json["errors_by_code"]["SYSTEM_BUSY"]["count"], 2);
        assert!(json["latency_us"]["p999"].as_u64().unwrap() >= 1500);
        let table = report.to_table();
        assert!(table.contains("SYSTEM_BUSY") && table.contains("p99.9"), "{table}");
    }
}
