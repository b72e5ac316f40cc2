//! Two kinds of plots as SVG text: bars of ratios, and lines over a number that grows. Both have logarithmic axes.

use std::fmt::Write;

use super::figures::Growth;
use super::markdown::number;

const WIDTH: f64 = 860.0;
const ROW: f64 = 22.0;
const FONT: &str = "font-family=\"sans-serif\" font-size=\"12\"";
/// Told apart by people who see few colours, too.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666",
];

/// A growing document. Writing to a String does not fail, so what `write!` returns says nothing.
struct Canvas(String);

impl Canvas {
    fn new(height: f64) -> Canvas {
        Canvas(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ))
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {FONT}>{text}</text>"
        );
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str, width: f64) {
        let _ = writeln!(
            self.0,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        );
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, colour: &str) {
        let _ = writeln!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
            ROW * 0.7
        );
    }

    fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        let _ = writeln!(
            self.0,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"
        );
    }

    fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// A logarithmic axis from data to pixels.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Over all values, which are positive, with whole powers of ten at its ends.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| {
            (low.min(v), high.max(v))
        });
        let low = low.log10().floor();
        let high = high.log10().ceil().max(low + 1.0);
        Axis {
            low,
            high,
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - self.low) / (self.high - self.low);
        self.from + part * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high as i32).map(|power| 10f64.powi(power))
    }
}

/// One bar per row, from 1 to the left (better) or right (worse).
pub fn ratios(rows: &[(String, f64, String)]) -> String {
    let height = ROW * (rows.len() as f64 + 3.0);
    let mut canvas = Canvas::new(height);
    let axis = Axis::over(
        rows.iter().map(|row| row.1).chain([0.5, 2.0]),
        400.0,
        WIDTH - 150.0,
    );
    canvas.text(
        axis.at(1.0),
        ROW,
        "middle",
        "cost of runnext ÷ cost of the best rival (left of 1 is better)",
    );
    for tick in axis.ticks() {
        canvas.line(
            (axis.at(tick), ROW * 1.4),
            (axis.at(tick), height - ROW),
            "#dddddd",
            1.0,
        );
        canvas.text(axis.at(tick), height - 6.0, "middle", &tick.to_string());
    }
    for (i, (title, ratio, rival)) in rows.iter().enumerate() {
        let y = ROW * (i as f64 + 1.6);
        let (a, b) = (axis.at(ratio.min(1.0)), axis.at(ratio.max(1.0)));
        let colour = if *ratio <= 1.0 {
            COLOURS[0]
        } else {
            COLOURS[1]
        };
        canvas.bar(a, y, (b - a).max(1.0), colour);
        canvas.text(390.0, y + ROW * 0.55, "end", title);
        canvas.text(
            WIDTH - 145.0,
            y + ROW * 0.55,
            "start",
            &format!("{ratio:.2}  {rival}"),
        );
    }
    canvas.line(
        (axis.at(1.0), ROW * 1.4),
        (axis.at(1.0), height - ROW),
        "#333333",
        1.5,
    );
    canvas.finish()
}

/// One line per runtime, runnext thicker.
pub fn lines(growth: &Growth) -> String {
    const HEIGHT: f64 = 420.0;
    let points = || growth.lines.values().flatten();
    let x = Axis::over(points().map(|p| p.0), 70.0, WIDTH - 170.0);
    let y = Axis::over(points().map(|p| p.1), HEIGHT - 50.0, 40.0);
    let mut canvas = Canvas::new(HEIGHT);
    canvas.text(70.0, 22.0, "start", &growth.title());
    for tick in x.ticks() {
        canvas.line((x.at(tick), y.from), (x.at(tick), y.to), "#dddddd", 1.0);
        canvas.text(x.at(tick), HEIGHT - 30.0, "middle", &number(tick));
    }
    for tick in y.ticks() {
        canvas.line((x.from, y.at(tick)), (x.to, y.at(tick)), "#dddddd", 1.0);
        canvas.text(62.0, y.at(tick) + 4.0, "end", &number(tick));
    }
    canvas.text((x.from + x.to) / 2.0, HEIGHT - 8.0, "middle", growth.axis());
    for (i, (runtime, points)) in growth.lines.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let width = if runtime == "runnext" { 3.0 } else { 1.5 };
        let at = |p: &(f64, f64)| (x.at(p.0), y.at(p.1));
        for pair in points.windows(2) {
            canvas.line(at(&pair[0]), at(&pair[1]), colour, width);
        }
        points.iter().for_each(|p| canvas.dot(at(p), colour));
        let row = 60.0 + ROW * i as f64;
        canvas.line(
            (WIDTH - 155.0, row - 4.0),
            (WIDTH - 130.0, row - 4.0),
            colour,
            width,
        );
        canvas.text(WIDTH - 122.0, row, "start", runtime);
    }
    canvas.finish()
}
