//! Goroutines that differ from the default.

use std::io;
use std::panic::Location;

use super::{JoinHandle, current_shared};
use crate::g::Ext;
use crate::group::TaskGroup;
use crate::sched::spawn::{self, Options};
use crate::stack;

/// Starts goroutines that need more than [`go`](super::go): a name, a stack of another size.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let parser = runnext::goroutine::Builder::new().name("parser").stack_size(1 << 20).spawn(|| {
///         runnext::current().unwrap().name().map(str::to_owned)
///     })?;
///     assert_eq!(parser.join().unwrap().as_deref(), Some("parser"));
///     Ok(())
/// }
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder starts nothing until spawn is called"]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
    group: Option<TaskGroup>,
}

impl Builder {
    /// A builder with the runtime's defaults.
    ///
    /// # Example
    /// ```
    /// use runnext::goroutine::Builder;
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     // As `go`, but no memory for another goroutine is an error here, not a panic.
    ///     match Builder::new().spawn(|| "started") {
    ///         Ok(job) => assert_eq!(job.join().unwrap(), "started"),
    ///         Err(e) => eprintln!("too many: {e}"),
    ///     }
    /// }
    /// ```
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the goroutine, for panics, dumps and traces.
    ///
    /// # Example
    /// ```
    /// use runnext::goroutine::Builder;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let workers = (0..3).map(|i| Builder::new().name(format!("worker {i}")).spawn(|| ()));
    ///     let workers = workers.collect::<std::io::Result<Vec<_>>>()?;
    ///     assert_eq!(workers[2].goroutine().name(), Some("worker 2"));
    ///     Ok(())
    /// }
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Bytes of stack, rounded up to a power of two of at least 64 KiB, 20 KiB of it for the guard. It is address space: only
    /// pages that are touched use memory.
    ///
    /// # Example
    /// ```
    /// use runnext::goroutine::Builder;
    ///
    /// /// Goes down a ladder of frames of a kilobyte each.
    /// fn depth(left: u32) -> u32 {
    ///     let frame = std::hint::black_box([left; 256]);
    ///     if left == 0 { 0 } else { 1 + depth(frame[255] - 1) }
    /// }
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let deep = Builder::new().stack_size(16 << 20).spawn(|| depth(1000))?;
    ///     assert_eq!(deep.join().unwrap(), 1000);
    ///     Ok(())
    /// }
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Starts it in this group, not in the caller's.
    ///
    /// # Example
    /// ```
    /// use runnext::{Priority, TaskGroup, goroutine::Builder};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let cleanup = TaskGroup::builder("cleanup").priority(Priority::Low).build();
    ///     let sweeper = Builder::new().name("sweeper").group(&cleanup).spawn(TaskGroup::current)?;
    ///     assert_eq!(sweeper.join().unwrap(), Some(cleanup));
    ///     Ok(())
    /// }
    /// ```
    pub fn group(mut self, group: &TaskGroup) -> Builder {
        self.group = Some(group.clone());
        self
    }

    /// Starts the goroutine.
    ///
    /// # Errors
    /// `InvalidInput` for a stack size of zero or above 1 GiB; the system's error if there is no memory for another
    /// goroutine.
    ///
    /// # Panics
    /// Outside a runtime. If the caller's task group is in use by another runtime.
    ///
    /// # Example
    /// ```
    /// use std::io::ErrorKind;
    /// use runnext::goroutine::Builder;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let text = String::from("moved in");
    ///     let job = Builder::new().spawn(move || text.len())?;
    ///     assert_eq!(job.join().unwrap(), 8);
    ///
    ///     let refused = Builder::new().stack_size(0).spawn(|| ());
    ///     assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    ///     Ok(())
    /// }
    /// ```
    #[track_caller]
    pub fn spawn<F, T>(mut self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let shared = current_shared("goroutine::Builder::spawn");
        let options = self.options(Location::caller())?;
        // SAFETY: 'static and Send by the bounds; the header counts one handle and its result is a T.
        unsafe { Ok(JoinHandle::new(spawn::spawn(shared, options, f)?)) }
    }

    pub(crate) fn options(&mut self, site: &'static Location<'static>) -> io::Result<Options<'_>> {
        let stack_class = self.stack_size.map(stack::class_for).transpose()?;
        let ext = self.name.take().map(|name| {
            Box::new(Ext {
                name: Some(name.into_boxed_str()),
                ..Ext::default()
            })
        });
        Ok(Options {
            site,
            ext,
            stack_class,
            group: self.group.as_ref().map(TaskGroup::record),
        })
    }
}
