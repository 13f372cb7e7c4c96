//! The table that a run prints.

use serde_json::{Value, json};
use std::path::Path;

/// What came of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no target.
    None,
    /// It is reached.
    Ok,
    /// It is not.
    Short,
    /// The yardstick itself was disturbed: what was seen cannot be.
    Void,
    /// It could not be measured.
    Failed,
}

impl Verdict {
    fn text(&self) -> &'static str {
        match self {
            Verdict::None => "–",
            Verdict::Ok => "OK",
            Verdict::Short => "short",
            Verdict::Void => "void",
            Verdict::Failed => "FAILED",
        }
    }

    /// OK or short.
    pub fn of(reached: bool) -> Verdict {
        if reached { Verdict::Ok } else { Verdict::Short }
    }
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// The scenario it belongs to, as `--only` names it.
    pub only: &'static str,
    /// What was measured.
    pub work: String,
    /// What was seen, with its circumstances.
    pub seen: String,
    /// The number in it that is judged, in the target's unit; none for a failure.
    pub figure: Option<f64>,
    /// What it must reach, in words; empty where there is none.
    pub target: String,
    /// What it is held against: the floor or another figure of this run.
    pub yardstick: String,
    /// Whether it does.
    pub verdict: Verdict,
}

impl Line {
    /// A line that is only told.
    pub fn told(only: &'static str, work: impl Into<String>, seen: String, figure: f64) -> Line {
        Line {
            only,
            work: work.into(),
            seen,
            figure: Some(figure),
            target: String::new(),
            yardstick: String::new(),
            verdict: Verdict::None,
        }
    }

    /// Gives it a target.
    pub fn target(mut self, target: impl Into<String>, reached: bool) -> Line {
        self.target = target.into();
        self.verdict = Verdict::of(reached);
        self
    }

    /// Gives it a target that the figure must not exceed.
    pub fn at_most(self, most: f64, unit: &str) -> Line {
        let reached = self.figure.is_some_and(|f| f <= most);
        self.target(format!("≤ {most} {unit}").trim_end(), reached)
    }

    /// Takes the verdict back where the yardstick cannot be right.
    pub fn void_if(mut self, impossible: bool) -> Line {
        if impossible {
            self.verdict = Verdict::Void;
        }
        self
    }

    /// Names what it is held against.
    pub fn yardstick(mut self, yardstick: impl Into<String>) -> Line {
        self.yardstick = yardstick.into();
        self
    }
}

/// All lines of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order of measurement.
    pub lines: Vec<Line>,
}

impl Report {
    /// Adds a line, and tells it at once.
    pub fn add(&mut self, line: Line) {
        eprintln!("  {}: {} [{}]", line.work, line.seen, line.verdict.text());
        self.lines.push(line);
    }

    /// Notes that a scenario could not be measured.
    pub fn failed(&mut self, only: &'static str, error: &std::io::Error) {
        let mut line = Line::told(only, only, error.to_string().replace('\n', " "), 0.0);
        line.figure = None;
        line.verdict = Verdict::Failed;
        self.add(line);
    }

    /// Whether each line was measured.
    pub fn complete(&self) -> bool {
        self.lines.iter().all(|l| l.verdict != Verdict::Failed)
    }

    /// The table as Markdown.
    pub fn table(&self) -> String {
        let mut out =
            String::from("| work | seen | target | yardstick | verdict |\n|---|---|---|---|---|\n");
        for l in &self.lines {
            let or_dash = |s: &str| {
                if s.is_empty() {
                    "–".into()
                } else {
                    s.replace('|', "\\|")
                }
            };
            out += &format!(
                "| {} | {} | {} | {} | {} |\n",
                l.work,
                or_dash(&l.seen),
                or_dash(&l.target),
                or_dash(&l.yardstick),
                l.verdict.text()
            );
        }
        out
    }

    /// The lines as JSON.
    pub fn json(&self) -> Value {
        self.lines
            .iter()
            .map(|l| {
                json!({
                    "only": l.only, "work": l.work, "seen": l.seen, "figure": l.figure,
                    "target": l.target, "yardstick": l.yardstick, "verdict": l.verdict.text(),
                })
            })
            .collect()
    }

    /// The figure of the first line of a scenario whose work begins so.
    pub fn figure(&self, only: &str, work: &str) -> Option<f64> {
        let line = |l: &&Line| l.only == only && l.work.starts_with(work);
        self.lines.iter().find(line).and_then(|l| l.figure)
    }
}

/// Writes a JSON document.
pub fn write_json(path: &Path, value: &Value) -> std::io::Result<()> {
    std::fs::write(path, format!("{value:#}\n"))
}

/// The median of several values.
pub fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_judged_by_its_figure() {
        let line = |f| Line::told("x", "work", format!("{f}"), f).at_most(2.0, "ms");
        assert_eq!(line(2.0).verdict, Verdict::Ok);
        assert_eq!(line(2.1).verdict, Verdict::Short);
        assert_eq!(line(f64::NAN).verdict, Verdict::Short);
        assert_eq!(line(1.0).target, "≤ 2 ms");
    }

    #[test]
    fn a_failure_shows_and_makes_the_run_incomplete() {
        let mut report = Report::default();
        report.add(Line::told("x", "work", "1".into(), 1.0));
        assert!(report.complete());
        report.failed("y", &std::io::Error::other("broken\nline"));
        assert!(!report.complete());
        assert!(
            report
                .table()
                .contains("| y | broken line | – | – | FAILED |")
        );
        assert_eq!(report.figure("y", ""), None);
        assert_eq!(report.figure("x", "wo"), Some(1.0));
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert!(median(Vec::new()).is_nan());
    }
}
