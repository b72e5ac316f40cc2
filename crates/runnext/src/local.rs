//! `goroutine_local!`: variables that follow the goroutine, not the thread.
//!
//! A goroutine's values live in its extension record, by the address of the key; on a plain thread they live in
//! a thread-local of the same shape. Values are dropped when their goroutine (or thread) ends, newest first.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use crate::g::{Ext, G};
use crate::m;

/// The values of one goroutine or thread. An `Rc` per value keeps it in place while user code looks at it, even if that
/// code initialises further ones. They never leave their goroutine.
#[derive(Default)]
struct Locals(Vec<(usize, Rc<dyn Any>)>);

impl Locals {
    fn get(&self, key: usize) -> Option<Rc<dyn Any>> {
        self.0
            .iter()
            .find(|(k, _)| *k == key)
            .map(|(_, v)| Rc::clone(v))
    }
}

impl Drop for Locals {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

thread_local! {
    static PLAIN: RefCell<Locals> = RefCell::default();
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
        Some(g) => locals_of(unsafe { g.ext() })?.get(key),
        None => PLAIN.with_borrow(|locals| locals.get(key)),
    }
}

fn add(key: usize, value: Rc<dyn Any>) {
    match current_g() {
        Some(g) => {
            // SAFETY: our own goroutine, in user context; the reference ends here.
            let ext = unsafe { g.ext() };
            if ext.locals.is_none() {
                ext.locals = Some(Box::<Locals>::default());
            }
            locals_of(ext).expect("made just now").0.push((key, value));
        }
        None => PLAIN.with_borrow_mut(|locals| locals.0.push((key, value))),
    }
}

/// A goroutine's values; none if it has not made any.
fn locals_of(ext: &mut Ext) -> Option<&mut Locals> {
    ext.locals.as_mut()?.downcast_mut()
}

/// Declares variables of which each goroutine has its own: the replacement for `thread_local!`, whose values a goroutine
/// leaves behind when it goes on on another thread. See [`LocalKey`](crate::LocalKey).
#[macro_export]
macro_rules! goroutine_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident : $t:ty = $init:expr $(; $($rest:tt)*)?) => {
        $(#[$attr])* $vis static $name: $crate::LocalKey<$t> = $crate::LocalKey::new(|| $init);
        $($crate::goroutine_local! { $($rest)* })?
    };
}
