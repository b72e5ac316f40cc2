//! `goroutine_local!`: variables that follow the goroutine, not the thread.
//!
//! A goroutine's values live in its extension record, by the address of the key; on a plain thread they live in
//! a thread-local of the same shape. Values are dropped when their goroutine (or thread) ends, newest first; each may still use the
//! older ones.

use std::any::Any;
use std::cell::{Cell, RefCell};
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
/// It has the methods of std's [`LocalKey`](std::thread::LocalKey): [`with`](Self::with) for all types, and short forms where the value is a
/// `Cell` or a `RefCell`. It has no `try_with`: a value lives as long as its goroutine; a value that is used while the
/// goroutine's locals are being dropped is made anew.
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
///     DEPTH.set(3);
///     runnext::go(|| assert_eq!(DEPTH.get(), 0)).join().unwrap();
///     runnext::yield_now(); // wherever we go on, the value is there
///     assert_eq!(DEPTH.get(), 3);
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
        let value = find(self.key()).unwrap_or_else(|| {
            let value: Rc<dyn Any> = Rc::new((self.init)());
            // The initialiser may itself have used this variable: the first value stays.
            find(self.key()).unwrap_or_else(|| {
                add(self.key(), Rc::clone(&value));
                value
            })
        });
        f(value.downcast_ref().expect("a key has one type"))
    }

    /// Makes `value` the first, if there is none; else it is given back.
    fn first_or(&'static self, value: T) -> Option<T> {
        if find(self.key()).is_some() {
            return Some(value);
        }
        add(self.key(), Rc::new(value));
        None
    }

    /// The address tells statics apart: they are not zero-sized.
    fn key(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// A copy of the value, which is initialised first if need be.
    ///
    /// # Example
    /// ```
    /// use std::cell::Cell;
    ///
    /// runnext::goroutine_local! {
    ///     static DEPTH: Cell<u32> = Cell::new(1);
    /// }
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     assert_eq!(DEPTH.get(), 1);
    ///     DEPTH.set(DEPTH.get() + 1);
    ///     assert_eq!(DEPTH.get(), 2);
    ///     assert_eq!(runnext::go(|| DEPTH.get()).join().unwrap(), 1);
    /// }
    /// ```
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Replaces the value by `value`. On first use `value` is the first one: the initialiser of the declaration does not run.
    ///
    /// # Example
    /// ```
    /// use std::cell::Cell;
    ///
    /// runnext::goroutine_local! {
    ///     static REQUEST: Cell<u64> = panic!("nobody has said which");
    /// }
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     REQUEST.set(7); // before all else: the initialiser does not run
    ///     assert_eq!(REQUEST.get(), 7);
    /// }
    /// ```
    pub fn set(&'static self, value: T) {
        if let Some(value) = self.first_or(Cell::new(value)) {
            self.with(|cell| cell.set(value.into_inner()));
        }
    }

    /// Takes the value, which is made first if need be, and leaves the default of its type.
    ///
    /// # Example
    /// ```
    /// use std::cell::Cell;
    ///
    /// runnext::goroutine_local! {
    ///     static JOB: Cell<Option<&'static str>> = Cell::new(Some("sweep"));
    /// }
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     assert_eq!(JOB.take(), Some("sweep"));
    ///     assert_eq!(JOB.take(), None);
    /// }
    /// ```
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Replaces the value by `value`, and returns the old one, which is initialised first if need be.
    ///
    /// # Example
    /// ```
    /// use std::cell::Cell;
    ///
    /// runnext::goroutine_local! {
    ///     static LEVEL: Cell<&'static str> = Cell::new("info");
    /// }
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     assert_eq!(LEVEL.replace("debug"), "info");
    ///     assert_eq!(LEVEL.replace("error"), "debug");
    /// }
    /// ```
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> LocalKey<RefCell<T>> {
    /// Calls `f` with the value, borrowed, which is initialised first if need be. `f` may block: the value belongs to the goroutine, on whichever thread it resumes.
    ///
    /// # Panics
    /// If it is borrowed mutably.
    ///
    /// # Example
    /// ```
    /// use std::cell::RefCell;
    ///
    /// runnext::goroutine_local! {
    ///     static STEPS: RefCell<Vec<u32>> = RefCell::new(vec![1, 2]);
    /// }
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     assert_eq!(STEPS.with_borrow(|steps| steps.len()), 2);
    /// }
    /// ```
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Calls `f` with the value, borrowed mutably, which is initialised first if need be. `f` may block.
    ///
    /// # Panics
    /// If it is borrowed.
    ///
    /// # Example
    /// ```
    /// use std::cell::RefCell;
    ///
    /// runnext::goroutine_local! {
    ///     static STEPS: RefCell<Vec<u32>> = RefCell::default();
    /// }
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     STEPS.with_borrow_mut(|steps| steps.push(1));
    ///     runnext::go(|| STEPS.with_borrow(|steps| assert!(steps.is_empty()))).join().unwrap();
    ///     STEPS.with_borrow(|steps| assert_eq!(*steps, [1]));
    /// }
    /// ```
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }

    /// Replaces the value by `value`. On first use `value` is the first one: the initialiser of the declaration does not run.
    ///
    /// # Panics
    /// If the value is borrowed.
    ///
    /// # Example
    /// ```
    /// use std::cell::RefCell;
    ///
    /// runnext::goroutine_local! {
    ///     static USER: RefCell<String> = panic!("nobody has signed in");
    /// }
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     USER.set("ann".to_owned()); // before all else: the initialiser does not run
    ///     USER.with_borrow(|user| assert_eq!(user, "ann"));
    /// }
    /// ```
    pub fn set(&'static self, value: T) {
        if let Some(value) = self.first_or(RefCell::new(value)) {
            self.with(|cell| drop(cell.replace(value.into_inner())));
        }
    }

    /// Takes the value, which is made first if need be, and leaves the default of its type.
    ///
    /// # Panics
    /// If it is borrowed.
    ///
    /// # Example
    /// ```
    /// use std::cell::RefCell;
    ///
    /// runnext::goroutine_local! {
    ///     static FOUND: RefCell<Vec<&'static str>> = RefCell::default();
    /// }
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     FOUND.with_borrow_mut(|found| found.push("a key"));
    ///     assert_eq!(FOUND.take(), ["a key"]);
    ///     assert!(FOUND.take().is_empty());
    /// }
    /// ```
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// Replaces the value by `value`, and returns the old one, which is initialised first if need be.
    ///
    /// # Panics
    /// If it is borrowed.
    ///
    /// # Example
    /// ```
    /// use std::cell::RefCell;
    ///
    /// runnext::goroutine_local! {
    ///     static USER: RefCell<String> = RefCell::new("nobody".to_owned());
    /// }
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     assert_eq!(USER.replace("ann".to_owned()), "nobody");
    ///     USER.with_borrow(|user| assert_eq!(user, "ann"));
    /// }
    /// ```
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
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
/// leaves behind when it resumes on another thread. See [`LocalKey`](crate::LocalKey).
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
///     QUERIES.set(QUERIES.get() + 1);
///     USER.with_borrow(|user| format!("query {} of {user}", QUERIES.get()))
/// }
///
/// #[runnext::main]
/// fn main() {
///     let served = ["ann", "bob"].map(|name| {
///         runnext::go(move || {
///             USER.set(name.to_owned());
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
