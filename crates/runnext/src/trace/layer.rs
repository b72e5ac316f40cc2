//! The spans of the `tracing` crate in the trace of the scheduler.

use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// A layer for `tracing-subscriber`'s registry that shows the spans a goroutine enters as spans of that goroutine.
///
/// `tracing` keeps its own stack of entered spans by thread: a span that is held entered across a call that can park is shown
/// correctly here, but may confuse other layers.
///
/// # Example
/// ```
/// use tracing_subscriber::prelude::*;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let subscriber = tracing_subscriber::registry().with(runnext::trace::Layer::default());
///     tracing::subscriber::with_default(subscriber, || {
///         runnext::trace::start(runnext::trace::Options::default())?;
///         tracing::info_span!("parsing").in_scope(|| ());
///         let json = runnext::trace::stop().unwrap().to_chrome();
///         assert!(json.contains("parsing"));
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Layer {}

impl<S> tracing_subscriber::Layer<S> for Layer
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_enter(&self, id: &tracing::span::Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            super::enter(span.name());
        }
    }

    fn on_exit(&self, _id: &tracing::span::Id, _context: Context<'_, S>) {
        super::leave();
    }
}
