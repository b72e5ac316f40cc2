//! Birth and end of a goroutine.
//!
//! The closure is written into the header (or boxed, if it is large) in user context, before the call that queues
//! it; the result takes its place when it ends. One [`Vtable`] per pair of closure and result type knows
//! both layouts.

use std::any::Any;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{self, AssertUnwindSafe, Location};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use runnext_core::list::List;

use super::Shared;
use super::call::Call;
use super::groups::{self, Belongs, Record};
use super::waker;
use crate::fatal::fatal;
use crate::g::{After, Birth, Ext, G, INLINE, Vtable};
use crate::m::{self, M};
use crate::p::{P, bump, bump_release};
use crate::say;
use crate::stack::NoStack;
use crate::swallow;

/// What a joiner gets.
pub(crate) type Outcome<T> = Result<T, Box<dyn Any + Send>>;

/// What a goroutine runs. Closures are bodies; a scope adds its own end.
pub(crate) trait Body {
    type Output;
    /// See [`Vtable::errand`].
    const ERRAND: bool = false;
    /// Runs it, catching its panic.
    fn run(self) -> (Outcome<Self::Output>, After);
    /// It cannot be started.
    fn fail(self) -> After;
}

impl<F: FnOnce() -> T, T> Body for F {
    type Output = T;

    #[inline]
    fn run(self) -> (Outcome<T>, After) {
        (panic::catch_unwind(AssertUnwindSafe(self)), After::NOTHING)
    }

    fn fail(self) -> After {
        // A panic in the drop of what it captured has nobody to go to.
        swallow::panics(move || drop(self));
        After::NOTHING
    }
}

struct Task<B>(PhantomData<B>);

/// Whether a value lies in the payload itself; otherwise a pointer to its box does.
pub(super) const fn fits<V>() -> bool {
    size_of::<V>() <= INLINE && align_of::<V>() <= align_of::<u64>()
}

/// Writes `value` to a payload.
///
/// # Safety
/// `at` is a payload that holds nothing.
#[inline]
pub(super) unsafe fn put<V>(at: *mut u8, value: V) {
    if fits::<V>() {
        // SAFETY: large and aligned enough.
        unsafe { at.cast::<V>().write(value) };
    } else {
        // SAFETY: a pointer always fits.
        unsafe { at.cast::<*mut V>().write(Box::into_raw(Box::new(value))) };
    }
}

/// Reads out what `put` wrote.
///
/// # Safety
/// The payload holds a `V`, which is the caller's now.
#[inline]
pub(super) unsafe fn take<V>(at: *mut u8) -> V {
    if fits::<V>() {
        // SAFETY: written by `put`.
        unsafe { at.cast::<V>().read() }
    } else {
        // SAFETY: written by `put`, from `Box::into_raw`.
        unsafe { *Box::from_raw(at.cast::<*mut V>().read()) }
    }
}

impl<B: Body> Task<B> {
    const VTABLE: &'static Vtable = &Vtable {
        run: Self::run,
        poll: Self::never,
        fail: Self::fail,
        drop_result: Self::drop_result,
        leave_group: Record::release,
        errand: B::ERRAND,
    };

    unsafe fn run(g: &G) -> After {
        // SAFETY: a goroutine that starts holds its body, which has left the payload when the result takes its place.
        unsafe {
            let (outcome, after) = take::<B>(g.payload()).run();
            put(g.payload(), outcome);
            after
        }
    }

    unsafe fn never(g: &G) -> bool {
        fatal(format_args!("goroutine {} is no future", g.id()))
    }

    unsafe fn fail(g: &G, why: Box<dyn Any + Send>) -> After {
        // SAFETY: never started, so it holds its body.
        unsafe {
            let after = take::<B>(g.payload()).fail();
            put::<Outcome<B::Output>>(g.payload(), Err(why));
            after
        }
    }

    unsafe fn drop_result(g: &G) {
        // SAFETY: the caller found an untaken result.
        let outcome = unsafe { take::<Outcome<B::Output>>(g.payload()) };
        // It was detached: a panic in the drop of its result has nobody to go to.
        swallow::panics(move || drop(outcome));
    }
}

/// Takes the result of an ended goroutine. Panics if it was taken before.
///
/// # Safety
/// `g.is_done()`, its result type is `T`, and the caller is its one `JoinHandle`.
pub(crate) unsafe fn take_outcome<T>(g: &G) -> Outcome<T> {
    // A handle can be awaited by reference, so it may come here again.
    assert!(
        !g.is_result_taken(),
        "a JoinHandle gives its result once: it was awaited to the end before, and is polled again or joined now; \
         fuse it, or take it out of the loop"
    );
    // SAFETY: the result is there (contract).
    let outcome = unsafe { take::<Outcome<T>>(g.payload()) };
    // SAFETY: moved out just now.
    unsafe { g.result_taken() };
    outcome
}

/// How a goroutine differs from the default.
pub(crate) struct Options<'a> {
    pub(crate) site: &'static Location<'static>,
    pub(crate) ext: Option<Box<Ext>>,
    /// None: the runtime's.
    pub(crate) stack_class: Option<u8>,
    /// None: the caller's.
    pub(crate) group: Option<&'a Arc<Record>>,
}

/// Makes a goroutine of `shared`'s runtime and queues it. The header returned counts one handle.
///
/// # Safety
/// What `body` and its result borrow outlives the goroutine, and both may move between threads.
#[inline]
pub(crate) unsafe fn spawn<B: Body>(
    shared: &Shared,
    options: Options<'_>,
    body: B,
) -> io::Result<NonNull<G>> {
    // SAFETY: the caller's promise; the table is that of such a body.
    unsafe { spawn_with(shared, options, body, Task::<B>::VTABLE) }
}

/// As [`spawn`], of anything.
///
/// # Safety
/// As [`spawn`]; and `vtable` knows what to do with a payload to which a `B` was `put`.
#[inline]
pub(super) unsafe fn spawn_with<B>(
    shared: &Shared,
    options: Options<'_>,
    body: B,
    vtable: &'static Vtable,
) -> io::Result<NonNull<G>> {
    // First: a group of another runtime panics, and what was put into a payload would never be dropped.
    let belongs = match options.group {
        None => Belongs::inherit(shared, m::current().and_then(M::g)),
        Some(group) => Belongs::to(group, shared),
    };
    // In user context, because a large closure is boxed.
    let mut payload = MaybeUninit::<[u64; INLINE / 8]>::uninit();
    // SAFETY: as large and aligned as a payload.
    unsafe { put(payload.as_mut_ptr().cast(), body) };
    let ext = options.ext.map_or(ptr::null_mut(), Box::into_raw);

    let call = Call::brief();
    let p = match call.m() {
        Some(m) if ptr::eq(m.shared, shared) => Some(m.p()),
        _ => None,
    };
    let (g, id) = match shared.header(p) {
        Ok(found) => found,
        Err(e) => {
            drop(call);
            belongs.revoke();
            // SAFETY: written above and given to nobody.
            let body = unsafe { take::<B>(payload.as_mut_ptr().cast()) };
            // As in `Body::fail`: the caller, who may have counted it, is told why in any case.
            swallow::panics(move || drop(body));
            if !ext.is_null() {
                // SAFETY: from `Box::into_raw` above.
                drop(unsafe { Box::from_raw(ext) });
            }
            return Err(e);
        }
    };
    // SAFETY: fresh from the slab: ours alone, and its payload is empty.
    let header = unsafe { g.as_ref() };
    let birth = Birth {
        id,
        vtable,
        site: options.site,
        ext,
        stack_class: options.stack_class.unwrap_or(shared.config.stack_class),
        lane: belongs.lane,
        group: belongs.group,
    };
    // SAFETY: as above.
    unsafe {
        ptr::copy_nonoverlapping(payload.as_ptr().cast::<u8>(), header.payload(), INLINE);
        header.begin(birth);
    }
    shared.observe.born(p, header);
    call.enqueue(header);
    Ok(g)
}

/// Makes a goroutine that nobody has a handle to, in RT. Runnable, and the caller's to queue, who owns `p`, if any.
///
/// # Safety
/// As [`spawn`].
pub(super) unsafe fn detached<B: Body>(
    shared: &Shared,
    p: Option<&P>,
    site: &'static Location<'static>,
    body: B,
) -> io::Result<NonNull<G>> {
    // SAFETY: the caller's promise.
    unsafe { detached_in(shared, p, Belongs::NOWHERE, site, body) }
}

/// As [`detached`], in a group.
///
/// # Safety
/// As [`spawn`].
pub(super) unsafe fn detached_in<B: Body>(
    shared: &Shared,
    p: Option<&P>,
    belongs: Belongs,
    site: &'static Location<'static>,
    body: B,
) -> io::Result<NonNull<G>> {
    const { assert!(fits::<B>(), "would be boxed, which is for user context") };
    let (g, id) = match shared.header(p) {
        Ok(found) => found,
        Err(e) => {
            std::mem::forget(body); // not ours to drop here
            return Err(e);
        }
    };
    // SAFETY: fresh from the slab: ours alone, and its payload is empty.
    let header = unsafe { g.as_ref() };
    let birth = Birth {
        id,
        vtable: Task::<B>::VTABLE,
        site,
        ext: ptr::null_mut(),
        stack_class: shared.config.stack_class,
        lane: belongs.lane,
        group: belongs.group,
    };
    // SAFETY: as above.
    unsafe {
        put(header.payload(), body);
        header.begin(birth);
    }
    header.disown();
    shared.observe.born(p, header);
    Ok(g)
}

impl Shared {
    /// A free header and a fresh id, counted as alive.
    #[inline]
    fn header(&self, p: Option<&P>) -> io::Result<(NonNull<G>, u64)> {
        let Some(p) = p else {
            return self.header_outside();
        };
        // SAFETY: the caller owns p; the reference ends with this function.
        let own = unsafe { p.own() };
        let g = own.alloc_g(self)?;
        bump(&p.stats.created);
        Ok((g, own.next_id(self)))
    }

    #[cold]
    fn header_outside(&self) -> io::Result<(NonNull<G>, u64)> {
        let mut one = self.slab.alloc(1, ptr::from_ref(self).cast())?;
        self.born_outside.fetch_add(1, Relaxed);
        Ok((
            one.pop_front().expect("the slab gives at least one"),
            self.next_id.fetch_add(1, Relaxed),
        ))
    }
}

/// The first function on a goroutine's stack; in RT.
pub(super) fn entry(g: &G) {
    let call = Call::resumed();
    if g.vtable().errand
        && let Some(m) = call.m()
    {
        begin_errand(m);
    }
    drop(call);
    // SAFETY: it starts now, with its closure in the payload.
    let after = unsafe { (g.vtable().run)(g) };
    end(g, after).keep();
}

/// An errand is about to wake others, and counts as ended from here on: who has joined all others counts one. In RT, with a P.
#[cold]
fn begin_errand(m: &M) {
    m.shared().errands.fetch_add(1, SeqCst); // first: it is in one of the counts all the time
    bump_release(&m.p().stats.ended);
}

/// The result is in the payload: tells whoever waits for it. In user context; returns in RT.
pub(super) fn end(g: &G, after: After) -> Call {
    g.drop_locals();
    groups::ended(g);
    // SAFETY: its end, and its result is there.
    unsafe { g.clean() };
    let call = Call::brief_with_p();
    if let Some(m) = call.m() {
        if g.vtable().errand {
            m.shared().errands.fetch_sub(1, SeqCst);
        } else {
            // Before anybody can see that it ended: who has joined all others counts one.
            bump_release(&m.p().stats.ended);
        }
    }
    tell(call, g, after)
}

/// The goroutine has ended: says so, and does what is left to do after that. `after` comes last: with it go those whose frames an unwanted
/// result may borrow from.
#[inline(always)] // the end of every goroutine, and seldom that of one whose runtime has stopped
pub(super) fn tell(mut call: Call, g: &G, after: After) -> Call {
    let (joiner, held) = g.finish();
    // SAFETY: registered by the joiner, and given to us by `finish`.
    let waker = joiner.and_then(|joiner| unsafe { waker::wake_joiner(&call, joiner) });
    if held || waker.is_some() || after.call.is_some() {
        drop(call);
        if let Some(waker) = waker {
            waker::use_up(waker);
        }
        if held {
            // SAFETY: its end; the waker, which may be anybody's code, has run.
            unsafe { g.let_go() };
        }
        if let Some(hook) = after.call {
            // SAFETY: given with its argument by the body, to be called once after its end.
            unsafe { hook(after.with) };
        }
        call = Call::brief_with_p();
    }
    call
}

/// Goroutines of this process that got no stack.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// A goroutine that could not get a stack ends with the reason, as if it had panicked. On the worker's own
/// stack, which serves as the goroutine's: wherever it would switch, it stays (`call::must_stay`).
#[cold]
pub(super) fn fail(m: &M, g: &G, why: &NoStack) {
    if g.vtable().errand {
        begin_errand(m);
    }
    m.leave();
    let message = format!("goroutine {} cannot start: no stack for it: {why}", g.id());
    // The first, then ever fewer: where one finds no room thousands may follow, and printing is a blocking call.
    let refused = REFUSED.fetch_add(1, Relaxed) + 1;
    if refused.is_power_of_two() {
        let site = g.site();
        say::line(format_args!(
            "{message} (spawned at {site}; refused so far: {refused})"
        ));
    }
    // SAFETY: it was never given a stack, so it never started.
    let after = unsafe { (g.vtable().fail)(g, Box::new(message)) };
    end(g, after).keep();
}

/// The worker has the goroutine's stack back; it ended on `p`.
#[inline]
pub(super) fn bury(shared: &Shared, p: &P, g: &G) {
    if g.leave_cpu() {
        // SAFETY: the caller owns p.
        unsafe { p.own() }.free_g(g.ptr(), shared);
    }
    if shared.draining.load(Relaxed) {
        shared.monitor.note_end();
    }
}

/// A goroutine has left this M, which goes on with others. False: not this one; the goroutine left its thread locked, and nobody
/// knows in what state. The P is given away.
#[inline]
pub(super) fn is_thread_clean(m: &M) -> bool {
    if m.locks.get() > 0 {
        let p = m.p();
        m.give_up();
        m.shared().hand_off(p);
        return false;
    }
    true
}

/// Its header is used by no M any more; returns it if nobody else uses it. In user context, outside its runtime.
pub(super) fn release(g: &G) {
    if g.leave_cpu() {
        // SAFETY: nobody has given the header back, so its runtime's memory is there.
        return_header(unsafe { super::shared_of(g) }, g.ptr(), Call::brief());
    }
}

/// Drops a handle to a goroutine; returns the header if it was the last use of it.
pub(crate) fn drop_handle(g: NonNull<G>) {
    // SAFETY: the handle keeps the header alive.
    let header = unsafe { g.as_ref() };
    // SAFETY: as above.
    let shared = unsafe { super::shared_of(header) };
    if header.drop_ref() {
        take_back(shared, g);
    }
}

/// Drops the one `JoinHandle` of a goroutine, and with it the right to its result, and whoever awaited it.
///
/// # Safety
/// By that handle, which is not used any more.
#[inline]
pub(crate) unsafe fn drop_join_handle(g: NonNull<G>) {
    // SAFETY: the handle keeps the header alive.
    let header = unsafe { g.as_ref() };
    // SAFETY: as above.
    let shared = unsafe { super::shared_of(header) };
    // SAFETY: the caller's promise.
    let (joiner, last) = unsafe { header.give_up() };
    if last {
        take_back(shared, g);
    }
    if let Some(word) = joiner {
        // SAFETY: who waits in `join` has the handle, so this is a task's, and nobody else's any more.
        drop(unsafe { waker::from_word(word) });
    }
}

/// A header that nobody uses any more, from wherever its last use was.
fn take_back(shared: &Shared, g: NonNull<G>) {
    let call = Call::brief();
    match call.m() {
        // SAFETY: the call owns the P.
        Some(m) if ptr::eq(m.shared, shared) => unsafe { m.p().own() }.free_g(g, shared),
        _ => return_header(shared, g, call),
    }
}

/// Takes back a header from outside its runtime, which may be gone but for this.
fn return_header(shared: &Shared, g: NonNull<G>, call: Call) {
    let mut list = List::new();
    // SAFETY: the last holder gives it, so it is in no list.
    unsafe { list.push_back(g) };
    let visit = shared.visit();
    let last = shared.slab.free(list);
    drop(visit); // not the last: it may be gone from here on
    drop(call); // open until here for the slab's lock
    if last {
        // SAFETY: the slab has told us, and it is the last use of `shared`.
        unsafe { free_orphaned(shared) };
    }
}

/// The last header has come back to a runtime that is gone but for its memory: lets go of that. In user context.
///
/// # Safety
/// By the one whom [`Slab::free`](crate::g::slab::Slab::free) told so, once. The caller does not use `shared` afterwards, unless it has a count of
/// its own.
pub(super) unsafe fn free_orphaned(shared: &Shared) {
    shared.see_visitors_off();
    // SAFETY: `stop` forgot one count for exactly this moment.
    drop(unsafe { Arc::from_raw(ptr::from_ref(shared)) });
}
