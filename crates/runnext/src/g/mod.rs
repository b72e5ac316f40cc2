//! G: the header of one goroutine.
//!
//! # Why this shape
//! The words a switch touches live in one cache line of a dense array, everything else in a second
//! array beside it (`slab`). A goroutine that waits to start owns no stack: its closure sits in the
//! header, and so does its result after it has ended, so the usual spawn allocates nothing.
//!
//! # States
//! `state` says where the goroutine is and who may move it on: the table and the park/wake protocol are in
//! `runnext_core::park`, and model-checked there.
//!
//! Who holds it, who takes its result and who cleans up after it is in `life`.

mod ext;
mod grouped;
mod life;
mod locks;
mod peek;
mod reason;
pub(crate) mod slab;
mod will;

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::mem::{MaybeUninit, offset_of};
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};

use corosensei::{Coroutine, Yielder};
use runnext_core::life::Life;
use runnext_core::list::Linked;
use runnext_core::park::{State, Woken};
use runnext_core::signal::Signal;
use runnext_sys::cpu;

use crate::fatal::fatal;
use crate::stack::Stack;

use life::TAKEN;

pub(crate) use ext::{Ext, Held, Locals};
pub(crate) use peek::Peek;
pub(crate) use reason::WaitReason;

/// How much of a stack's top is fetched ahead: entry, closure, and the frames of a parking call.
const PREFETCH_LINES: usize = 6;

/// A goroutine that has neither waited nor been stopped: nobody knows yet what it weighs.
const WEIGHT_FRESH: u8 = 0x80;
/// From here on it is a hog. One long run outweighs two waits, and the past beyond the last few does not count: the goroutine of
/// a connection that computes for milliseconds on each request stays one. Guesses; `bench tail` is what they are for.
const WEIGHT_HOG: u8 = 2;
const WEIGHT_STEP: u8 = 2;
const WEIGHT_MAX: u8 = 5;

/// What a goroutine that switches off asks its M to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// Queue it again, at the tail.
    Yield,
    /// Leave it alone until somebody wakes it.
    Park,
}

/// What a goroutine goes on with is told where it goes on: its M, an address that `sched` knows the meaning of.
pub(crate) type Coro = Coroutine<NonNull<()>, Switch, (), Stack>;
pub(crate) type GYielder = Yielder<NonNull<()>, Switch>;

/// That a goroutine in a queue is timed (`observe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Mark {
    /// Its delay goes into the histogram.
    Timed = 1,
    /// And into the ring of samples.
    Ring = 2,
}

/// A mark, and since when.
#[derive(Clone, Copy)]
pub(crate) struct Timed {
    pub(crate) mark: Mark,
    pub(crate) since: u64,
}

/// The bits of `wired` that are a [`Mark`], and zero in the address of an M.
const MARKS: usize = 3;

/// The words of a goroutine that a switch touches: one cache line.
#[repr(C, align(64))]
pub(crate) struct G {
    /// Where it is (`runnext_core::park`).
    pub(crate) state: State,
    /// Arbiter between several possible wakers of one park (`sched::wait::Ticket`): generation and a
    /// "claimed" bit.
    pub(crate) claim: AtomicU32,
    /// The next in its list. It is in none while it waits: then since when, to within 10 ms (`observe::coarse_ns`).
    link: AtomicPtr<G>,
    coro: UnsafeCell<MaybeUninit<Coro>>,
    yielder: Cell<*const GYielder>,
    /// The M this goroutine must go on on: it is preempted, locked to it, or blocks while unwinding.
    /// A P that dequeues it gives itself to that M. Or, of one that is in a queue and not wired, a [`Mark`]
    /// and since when, in ns, above it.
    wired: AtomicPtr<()>,
}

/// What is left to do once a goroutine has ended and its result is delivered.
pub(crate) struct After {
    pub(crate) call: Option<unsafe fn(*const ())>,
    pub(crate) with: *const (),
}

impl After {
    pub(crate) const NOTHING: After = After {
        call: None,
        with: ptr::null(),
    };

    /// Does it.
    ///
    /// # Safety
    /// Once, in user context, while what it is done `with` is there.
    pub(crate) unsafe fn run(self) {
        if let Some(call) = self.call {
            // SAFETY: the contract.
            unsafe { call(self.with) };
        }
    }
}

/// How the payload of a goroutine is run and dropped; one per closure type.
pub(crate) struct Vtable {
    /// Moves the closure out of the payload, runs it and leaves the result in the payload. Never unwinds. Of goroutines with
    /// a stack.
    pub(crate) run: unsafe fn(&G) -> After,
    /// Polls the future in the payload; true: it is done, and the result is in the payload. Never unwinds. Of goroutines without
    /// a stack.
    pub(crate) poll: unsafe fn(&G) -> bool,
    /// Drops the closure of a goroutine that cannot start, or the future of one that will not be polled again, and leaves this
    /// error as its result.
    pub(crate) fail: unsafe fn(&G, Box<dyn Any + Send>) -> After,
    /// Drops a result nobody took.
    pub(crate) drop_result: unsafe fn(&G),
    /// Gives back its count of its group.
    pub(crate) leave_group: unsafe fn(*const ()),
    /// It is the runtime's own and others wait for it: if its runtime stops before it starts, it is done by `fail`.
    pub(crate) errand: bool,
}

/// The class of stack of goroutines that have none: they are futures.
pub(crate) const NO_STACK: u8 = 0x7f;

/// Bytes of closure, and of result, that need no allocation.
pub(crate) const INLINE: usize = 40;

/// The rest of a goroutine.
#[repr(C)]
pub(crate) struct Cold {
    /// Who holds it, and how far its end has come (`runnext_core::life`).
    life: Life,
    /// Who waits for its end (a `sched::wait::Waiter`, or a waker), valid while somebody is registered.
    joiner: AtomicUsize,
    id: AtomicU64,
    vtable: Cell<&'static Vtable>,
    /// The group in whose name it runs until it releases a lock that somebody waits for, or its last; counted. Or a mark that it is to make way then.
    /// Each unlock looks at it: it is in the line of `locks`.
    lent: AtomicPtr<()>,
    ext: AtomicPtr<Ext>,
    reason: AtomicU8,
    /// log2 class of the stack it starts on (`stack::Class`), or [`NO_STACK`]; and [`TAKEN`].
    stack_class: Cell<u8>,
    /// What wakers of a future ring that it polls: as a goroutine without a stack, or in `block_on`.
    signal: Signal,
    /// How much of a CPU hog it has been lately. Written by the M that has it.
    weight: AtomicU8,
    /// Locks it took less locks it released, modulo 2^16; written by the goroutine alone.
    locks: AtomicU16,
    /// Of the locks it took, those that others released for it.
    locks_elsewhere: AtomicU16,
    /// The lane it queues in: the number of its group in its runtime, or of one that lends it its own; 0: none. What
    /// stands here is kept alive by `group` or `lent`.
    lane: AtomicU32,
    /// When it was made runnable, if that is to be measured (`sched::groups`); 0: it is not.
    stamp: AtomicU32,
    /// Its group, counted; written by itself. An address that `sched::groups` knows the meaning of.
    group: AtomicPtr<()>,
    /// Where it was started; for dumps.
    site: AtomicPtr<Location<'static>>,
    /// CPU time it was charged with, in ns.
    cpu: AtomicU64,
    payload: UnsafeCell<[MaybeUninit<u64>; INLINE / 8]>,
}

const _: () = assert!(size_of::<G>() == 64 && size_of::<Cold>() <= 128);
const _: () = assert!(offset_of!(Cold, lent) / 64 == offset_of!(Cold, locks) / 64);

// SAFETY: every field is an atomic, or is written only by the party the tables above name, which the state
// and life words hand over with release/acquire.
unsafe impl Sync for G {}
// SAFETY: as above. What the payload and the stack hold is `Send` by the bounds on spawning and by the
// contract accepted at `Builder::build`.
unsafe impl Send for G {}

// SAFETY: `link` is one fixed word per header, and a goroutine is on at most one list (state table).
unsafe impl Linked for G {
    #[inline]
    fn link(this: NonNull<Self>) -> *const AtomicPtr<Self> {
        // SAFETY: headers stay mapped while their runtime lives; only the field's address is taken.
        unsafe { &raw const (*this.as_ptr()).link }
    }
}

/// What [`G::begin`] needs to know.
pub(crate) struct Birth {
    pub(crate) id: u64,
    pub(crate) vtable: &'static Vtable,
    pub(crate) site: &'static Location<'static>,
    pub(crate) ext: *mut Ext,
    pub(crate) stack_class: u8,
    pub(crate) lane: u32,
    pub(crate) group: *const (),
}

impl G {
    #[inline]
    pub(crate) fn ptr(&self) -> NonNull<G> {
        NonNull::from(self)
    }

    /// Makes a header taken from the slab into a runnable goroutine with one handle.
    ///
    /// # Safety
    /// The caller took the header from the slab and has written the closure into the payload.
    #[inline]
    pub(crate) unsafe fn begin(&self, birth: Birth) {
        let cold = self.cold();
        cold.id.store(birth.id, Relaxed);
        cold.vtable.set(birth.vtable);
        cold.site
            .store(ptr::from_ref(birth.site).cast_mut(), Relaxed);
        cold.ext.store(birth.ext, Relaxed);
        cold.reason.store(WaitReason::None as u8, Relaxed);
        cold.stack_class.set(birth.stack_class);
        cold.signal.reset();
        cold.weight.store(WEIGHT_FRESH, Relaxed);
        cold.locks.store(0, Relaxed);
        cold.locks_elsewhere.store(0, Relaxed);
        cold.lane.store(birth.lane, Relaxed);
        cold.stamp.store(0, Relaxed);
        cold.group.store(birth.group.cast_mut(), Relaxed);
        cold.lent.store(ptr::null_mut(), Relaxed);
        cold.cpu.store(0, Relaxed);
        cold.life.begin();
        self.wired.store(ptr::null_mut(), Relaxed);
        self.yielder.set(ptr::null());
        // Published to others by the release of the queue it goes into.
        self.state.set_runnable();
    }

    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.cold().id.load(Relaxed)
    }

    #[inline]
    pub(crate) fn site(&self) -> &'static Location<'static> {
        // SAFETY: from a reference, at its birth.
        unsafe { &*self.cold().site.load(Relaxed) }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        // SAFETY: a reference asks, or the goroutine itself before its end or while it is held: `life::I2` and `I4` keep `ext` for both.
        unsafe { self.cold().ext.load(Acquire).as_ref() }.and_then(|e| e.name.as_deref())
    }

    pub(crate) fn has_ext(&self) -> bool {
        !self.cold().ext.load(Relaxed).is_null()
    }

    pub(crate) fn stack_class(&self) -> u8 {
        self.cold().stack_class.get() & !TAKEN
    }

    /// Is it a future, polled on its worker's stack?
    #[inline]
    pub(crate) fn is_stackless(&self) -> bool {
        self.stack_class() == NO_STACK
    }

    /// What wakers of the future it polls ring.
    #[inline]
    pub(crate) fn signal(&self) -> &Signal {
        &self.cold().signal
    }

    /// The extension record, made on first use.
    ///
    /// # Safety
    /// Only the goroutine itself calls this, in user context (it allocates), and keeps no reference
    /// over a call that might call it again.
    #[allow(clippy::mut_from_ref)] // exclusive by the contract
    pub(crate) unsafe fn ext(&self) -> &mut Ext {
        let mut ext = self.cold().ext.load(Acquire);
        if ext.is_null() {
            ext = Box::into_raw(Box::default());
            self.cold().ext.store(ext, Release);
        }
        // SAFETY: not null, owned by this goroutine (contract).
        unsafe { &mut *ext }
    }

    /// Its one waker ends its wait (`runnext_core::park`). True: it is runnable, and the caller's to queue.
    #[inline]
    pub(crate) fn wake(&self) -> bool {
        match self.state.wake() {
            Woken::Queue => true,
            Woken::Noted => false,
            Woken::Wrong(state) => fatal(format_args!(
                "goroutine {} woken in state {state}",
                self.id()
            )),
        }
    }

    /// Whether it has used little CPU lately, as far as anybody knows: such a one, woken by an event, may take the P of one
    /// that runs on and on.
    #[inline]
    pub(crate) fn is_light(&self) -> bool {
        self.weight() & !WEIGHT_FRESH < WEIGHT_HOG
    }

    /// Whether it is light, has waited before, and has not run on and on lately, so that this is more than a presumption.
    #[inline]
    pub(crate) fn is_known_light(&self) -> bool {
        self.weight() == 0
    }

    /// Whether it is new: it has neither waited nor been stopped.
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        self.weight() == WEIGHT_FRESH
    }

    #[inline]
    fn weight(&self) -> u8 {
        self.cold().weight.load(Relaxed)
    }

    /// It ran on until it was made to stop.
    pub(crate) fn gain_weight(&self) {
        let now = self.weight() & !WEIGHT_FRESH;
        self.cold()
            .weight
            .store((now + WEIGHT_STEP).min(WEIGHT_MAX), Relaxed);
    }

    /// It gave way by itself.
    #[inline]
    pub(crate) fn lose_weight(&self) {
        let now = self.weight();
        if now > 0 {
            let less = if now == WEIGHT_FRESH { 0 } else { now - 1 };
            self.cold().weight.store(less, Relaxed);
        }
    }

    /// Ties the goroutine to an M (`G::wire` in `m`, which knows what that is), or unties it.
    #[inline]
    pub(crate) fn set_wired(&self, m: *const ()) {
        self.wired.store(m.cast_mut(), Relaxed);
    }

    #[inline]
    pub(crate) fn unwire(&self) {
        self.set_wired(ptr::null());
    }

    #[inline]
    pub(crate) fn wired(&self) -> *const () {
        let m = self.wired.load(Relaxed);
        if m.addr() & MARKS == 0 {
            m
        } else {
            ptr::null()
        }
    }

    /// Whether a dispatcher has anything to do for it but to run it: it is wired, or marked.
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        !self.wired.load(Relaxed).is_null()
    }

    /// It is timed, unless it is wired. By who is about to queue it.
    pub(crate) fn set_mark(&self, timed: Timed) {
        if !self.is_special() {
            let marked = (timed.since as usize) << MARKS.count_ones() | timed.mark as usize;
            self.wired
                .store(ptr::without_provenance_mut(marked), Relaxed);
        }
    }

    /// Its mark. By who took it out of its queue.
    pub(crate) fn take_mark(&self) -> Option<Timed> {
        let word = self.wired.load(Relaxed).addr();
        let mark = match word & MARKS {
            0 => return None,
            1 => Mark::Timed,
            _ => Mark::Ring,
        };
        self.unwire();
        let since = (word >> MARKS.count_ones()) as u64;
        Some(Timed { mark, since })
    }

    #[inline]
    pub(crate) fn payload(&self) -> *mut u8 {
        self.cold().payload.get().cast()
    }

    #[inline]
    pub(crate) fn vtable(&self) -> &'static Vtable {
        self.cold().vtable.get()
    }

    /// Has it got a stack, that is, has it ever been dispatched?
    #[inline]
    pub(crate) fn has_stack(&self) -> bool {
        !self.yielder.get().is_null()
    }

    /// Asks for the cache lines that waking it will touch.
    #[inline]
    pub(crate) fn prefetch_header(&self) {
        cpu::prefetch(self);
        cpu::prefetch(self.cold());
    }

    /// Asks for the cache lines that resuming will touch: the top of the stack, where the link to the worker and the last
    /// frames of a goroutine that waits are.
    #[inline]
    pub(crate) fn prefetch_stack(&self) {
        let top = self.yielder.get().cast::<u8>();
        for line in 0..PREFETCH_LINES {
            cpu::prefetch(top.wrapping_sub(line * 64));
        }
    }

    /// Gives the goroutine its stack; the next [`resume`](Self::resume) enters `entry` on it.
    ///
    /// # Safety
    /// Called by the M that dispatches it, once in its life.
    #[inline]
    pub(crate) unsafe fn attach(&self, stack: Stack, entry: fn(&G)) {
        let this = self as *const G;
        // SAFETY: the closure borrows nothing but the header, which outlives the coroutine (it is
        // finished or abandoned for ever, never dropped).
        let coro = unsafe {
            Coro::with_stack_unchecked(stack, move |yielder: &GYielder, _| {
                let g = &*this;
                g.yielder.set(yielder);
                entry(g);
            })
        };
        // SAFETY: this M is the only one that touches the slot (state RUNNING).
        unsafe { (*self.coro.get()).write(coro) };
    }

    /// Runs the goroutine on the M `on` until it switches off; `None` when it has ended.
    ///
    /// # Safety
    /// Called by the M that dispatched it (state RUNNING), on the M's own stack, after `attach`.
    #[inline]
    pub(crate) unsafe fn resume(&self, on: NonNull<()>) -> Option<Switch> {
        // SAFETY: attached (contract), and RUNNING gives this M exclusive use of the slot.
        unsafe { (*self.coro.get()).assume_init_mut() }
            .resume(on)
            .as_yield()
    }

    /// Switches from the goroutine to its M. Returns on the M that resumes it, with that.
    ///
    /// Inlined as far as it goes: every `ret` between here and the caller's loop is one the CPU predicts wrong, since it
    /// remembers the worker's calls. The goroutine may come back on another thread; the runtime's one thread-local is read
    /// through a function that is not inlined (`m::current`), so no old address survives, and here not at all.
    ///
    /// # Safety
    /// Called on this goroutine's own stack.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self, what: Switch) -> NonNull<()> {
        // SAFETY: set when the goroutine started; it lives at the root of the stack we stand on.
        unsafe { (*self.yielder.get()).suspend(what) }
    }

    /// Takes the stack of a goroutine that has ended.
    ///
    /// # Safety
    /// `resume` returned `None`.
    #[inline]
    pub(crate) unsafe fn detach(&self) -> Stack {
        self.yielder.set(ptr::null());
        // SAFETY: attached and completed, and read out exactly once.
        unsafe { (*self.coro.get()).assume_init_read() }.into_stack()
    }

    /// The stack of a goroutine that has one; for the fault handler and dumps.
    ///
    /// # Safety
    /// `has_stack()`, and the goroutine is current on the calling thread or kept from running.
    pub(crate) unsafe fn stack_bounds(&self) -> (usize, usize) {
        // SAFETY: attached (contract); `stack` is the first word of the packed handle and never changes
        // while attached, so reading it beside the running coroutine is sound.
        let stack: Stack = unsafe { ptr::read(self.coro.get().cast::<Stack>()) };
        (stack.slot_start(), stack.slot_end())
    }
}
