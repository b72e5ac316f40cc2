//! `goroutine_local!`: variables that follow the goroutine, not the thread.
//!
//! A goroutine's values live in its extension record, by the address of the key; on a plain thread they live in
//! a thread-local of the same shape. Values are dropped when their goroutine (or thread) ends, newest first; each may still use the
//! older ones.

use std::any::Any;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use crate::g::{G, Locals};
use crate::m;

thread_local! {
    /// Of a plain thread. Has no destructor of its own, so that those of its values, and of other thread-locals, find it.
    static PLAIN: ManuallyDrop<RefCell<Locals>> =
        const { ManuallyDrop::new(RefCell::new(Locals::new())) };
    static AT_END: AtEnd = const { AtEnd };
}

/// Drops the values of a plain thread when it ends. What others make after that is leaked.
struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        Locals::drop_all(|look| PLAIN.with(|locals| look(&mut locals.borrow_mut())));
        drop(PLAIN.with(|locals| locals.replace(Locals::new()))); // empty, but it has room
    }
}

/// A variable declared with [`goroutine_local!`](crate::goroutine_local): each goroutine has its own value, made
/// on first use. On a plain thread it is the thread's.
///
/// # Example
/// ```
/// use std::cell::Cell;
///
/// runnext::goroutine_local! {
///     static DEPTH: Cell<u32> = Cell::new(0);
/// }
///
/// #[runnext::main]
/// fn main() {
///     DEPTH.with(|d| d.set(3));
///     runnext::go(|| DEPTH.with(|d| assert_eq!(d.get(), 0))).join().unwrap();
///     runnext::yield_now(); // wherever we go on, the value is there
///     DEPTH.with(|d| assert_eq!(d.get(), 3));
/// }
/// ```
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(init: fn() -> T) -> Self {
        LocalKey { init }
    }

    /// Calls `f` with the value, initialising it first if need be. `f` may block and may use other locals.
    ///
    /// # Example
    /// ```
    /// use std::cell::RefCell;
    ///
    /// runnext::goroutine_local! {
    ///     static STEPS: RefCell<Vec<&'static str>> = RefCell::new(vec!["made"]);
    /// }
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let job = runnext::go(|| {
    ///         STEPS.with(|steps| steps.borrow_mut().push("used"));
    ///         runnext::yield_now();
    ///         STEPS.with(|steps| steps.take())
    ///     });
    ///     assert_eq!(job.join().unwrap(), ["made", "used"]);
    ///     assert_eq!(STEPS.with(|steps| steps.borrow().len()), 1); // our own was not touched
    /// }
    /// ```
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        // The address tells statics apart: they are not zero-sized.
        let key = std::ptr::from_ref(self).addr();
        let value = find(key).unwrap_or_else(|| {
            let value: Rc<dyn Any> = Rc::new((self.init)());
            // The initialiser may itself have used this variable: the first value stays.
            find(key).unwrap_or_else(|| {
                add(key, Rc::clone(&value));
                value
            })
        });
        f(value.downcast_ref().expect("a key has one type"))
    }
}

impl<T> std::fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

/// The goroutine of the calling thread. Not kept over a call that may park.
#[inline(never)]
fn current_g() -> Option<&'static G> {
    m::current()?.g()
}

fn find(key: usize) -> Option<Rc<dyn Any>> {
    match current_g() {
        // SAFETY: our own goroutine, in user context; the reference ends here.
        Some(g) => unsafe { g.ext() }.locals.get(key),
        None => PLAIN.with(|locals| locals.borrow().get(key)),
    }
}

fn add(key: usize, value: Rc<dyn Any>) {
    match current_g() {
        // SAFETY: our own goroutine, in user context; the reference ends here.
        Some(g) => unsafe { g.ext() }.locals.add(key, value),
        None => {
            PLAIN.with(|locals| locals.borrow_mut().add(key, value));
            let _ = AT_END.try_with(|_| ()); // from now on there is something to do
        }
    }
}

/// Declares variables of which each goroutine has its own: the replacement for `thread_local!`, whose values a goroutine
/// leaves behind when it goes on on another thread. See [`LocalKey`](crate::LocalKey).
///
/// # Example
/// ```
/// use std::cell::{Cell, RefCell};
///
/// runnext::goroutine_local! {
///     /// Whose request this goroutine serves.
///     pub static USER: RefCell<String> = RefCell::new("nobody".to_owned());
///     static QUERIES: Cell<u32> = Cell::new(0);
/// }
///
/// fn query() -> String {
///     QUERIES.with(|n| n.set(n.get() + 1));
///     USER.with(|user| format!("query {} of {}", QUERIES.with(Cell::get), user.borrow()))
/// }
///
/// #[runnext::main]
/// fn main() {
///     let served = ["ann", "bob"].map(|name| {
///         runnext::go(move || {
///             USER.with(|user| user.replace(name.to_owned()));
///             query();
///             query()
///         })
///     });
///     assert_eq!(served.map(|s| s.join().unwrap()), ["query 2 of ann", "query 2 of bob"]);
///     assert_eq!(query(), "query 1 of nobody");
/// }
/// ```
#[macro_export]
macro_rules! goroutine_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident : $t:ty = $init:expr $(; $($rest:tt)*)?) => {
        $(#[$attr])* $vis static $name: $crate::LocalKey<$t> = $crate::LocalKey::new(|| $init);
        $($crate::goroutine_local! { $($rest)* })?
    };
}
