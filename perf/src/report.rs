//! The table that a run prints.

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// What was measured.
    pub work: String,
    /// What it must reach, in words.
    pub target: String,
    /// What was seen.
    pub seen: String,
    /// Whether it does; none where there is no target.
    pub reached: Option<bool>,
}

/// All lines of a run.
#[derive(Debug, Default)]
pub struct Report {
    lines: Vec<Line>,
}

impl Report {
    /// Adds and prints a line.
    pub fn add(&mut self, work: &str, target: &str, seen: String, reached: Option<bool>) {
        let line = Line {
            work: work.into(),
            target: target.into(),
            seen,
            reached,
        };
        eprintln!("  {}: {} ({})", line.work, line.seen, line.target);
        self.lines.push(line);
    }

    /// Prints the table as Markdown.
    pub fn print(&self) {
        println!("| work | target | seen | reached |\n|---|---|---|---|");
        for l in &self.lines {
            let reached = l.reached.map_or("–", |r| if r { "yes" } else { "no" });
            println!("| {} | {} | {} | {reached} |", l.work, l.target, l.seen);
        }
    }
}

/// The median of several values.
pub fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(f64::NAN)
}
