package main

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func window(a args, seconds float64) time.Duration {
	return time.Duration(a.float("seconds", seconds) * 1e9)
}

func preempt(a args) {
	for range a.int("hogs", 1) {
		go func() {
			for {
				work(1 << 20)
			}
		}()
	}
	t := startTicks(window(a, 3))
	t.run()
	t.report("preempt")
}

// A sleep that the runtime does not see: what a C library's would be.
func kernelSleep(span time.Duration) {
	ts := syscall.NsecToTimespec(int64(span))
	for syscall.Nanosleep(&ts, &ts) == syscall.EINTR {
	}
}

func blocking(a args) {
	span := time.Duration(a.int("ms", 100)) * time.Millisecond
	for range a.int("tasks", 8) {
		go func() {
			for {
				kernelSleep(span)
			}
		}()
	}
	t := startTicks(window(a, 3))
	t.run()
	t.report("blocking")
}

// A blocking read of a pipe that a thread of its own answers after the span.
func pipeBlock(span time.Duration) func() {
	var ask, answer [2]int
	if syscall.Pipe(ask[:]) != nil || syscall.Pipe(answer[:]) != nil {
		panic("pipe")
	}
	go func() {
		runtime.LockOSThread()
		one := []byte{0}
		for {
			if n, _ := syscall.Read(ask[0], one); n != 1 {
				return
			}
			kernelSleep(span)
			_, _ = syscall.Write(answer[1], one)
		}
	}()
	return func() {
		one := []byte{1}
		_, _ = syscall.Write(ask[1], one)
		_, _ = syscall.Read(answer[0], one)
	}
}

func gap(a args) {
	span := time.Duration(a.int("ms", 20)) * time.Millisecond
	block := func() { kernelSleep(span) }
	switch a.text("kind", "sleep") {
	case "sleep", "usleep":
	case "pipe":
		block = pipeBlock(span)
	default:
		report{"scenario": "gap", "unsupported": true}.print()
		return
	}
	var last, widest atomic.Int64
	var over atomic.Bool
	last.Store(now())
	go func() {
		for !over.Load() {
			time := now()
			if gap := time - last.Swap(time); gap > widest.Load() {
				widest.Store(gap)
			}
			runtime.Gosched()
		}
	}()
	var tries []float64
	for range a.int("tries", 100) {
		widest.Store(0)
		block()
		gap := max(widest.Load(), now()-last.Load())
		tries = append(tries, float64(gap)/1e6)
	}
	over.Store(true)
	newReport("gap").percentiles("gap_ms_", tries).print()
}

func lost(a args) {
	procs := a.int("procs", 2)
	steps := int(a.float("ms", 1000) * 1e6 / a.float("step_ns", 1.9))
	run := func(hogs, steps int, ticker bool) float64 {
		var over atomic.Bool
		var all, tick sync.WaitGroup
		begin := time.Now()
		if ticker {
			tick.Go(func() {
				for !over.Load() {
					time.Sleep(time.Millisecond)
				}
			})
		}
		for range hogs {
			all.Go(func() { work(steps) })
		}
		all.Wait()
		took := time.Since(begin).Seconds()
		over.Store(true)
		tick.Wait()
		return took
	}
	var plain, sliced, ticked []float64
	for range a.int("rounds", 3) {
		plain = append(plain, run(procs, steps, false))
		sliced = append(sliced, run(4*procs, steps/4, false))
		ticked = append(ticked, run(procs, steps, true))
	}
	median := func(times []float64) float64 {
		slices.Sort(times)
		return percentile(times, 0.5)
	}
	base := median(plain)
	newReport("lost").put("slices_pct", (median(sliced)/base-1)*100).
		put("ticks_pct", (median(ticked)/base-1)*100).put("plain_ms", base*1e3).print()
}

func syscallCost(a args) {
	n := a.int("n", 2_000_000)
	measure := func(call func(trap, a1, a2, a3 uintptr) (uintptr, uintptr, syscall.Errno)) float64 {
		begin := time.Now()
		for range n {
			_, _, _ = call(syscall.SYS_GETPPID, 0, 0, 0)
		}
		return float64(time.Since(begin).Nanoseconds()) / float64(n)
	}
	var raw, full []float64
	for range 7 {
		raw = append(raw, measure(syscall.RawSyscall))
		full = append(full, measure(syscall.Syscall))
	}
	slices.Sort(raw)
	slices.Sort(full)
	r, f := percentile(raw, 0.5), percentile(full, 0.5)
	newReport("syscall").put("raw_ns", r).put("total_ns", f).put("overhead_ns", f-r).print()
}

func tail(a args) {
	stepNs := a.float("step_ns", 1.9)
	lightSteps := int(a.float("light_us", 50) * 1e3 / stepNs)
	heavySteps := int(a.float("heavy_ms", 30) * 1e6 / stepNs)
	think := time.Duration(a.int("think_us", 1000)) * time.Microsecond
	seconds, rate, lanes := a.float("seconds", 20), a.float("rate", 200), a.int("lanes", 256)
	begin := now() + int64(500*time.Millisecond)
	end := begin + int64(seconds*1e9)
	var arrivals []int64
	dice := rng(a.int("seed", 1))
	for at := float64(begin); ; {
		at += -math.Log(dice.unit()) / rate * 1e9
		if at >= float64(end) {
			break
		}
		arrivals = append(arrivals, int64(at))
	}
	done := make([]atomic.Int64, len(arrivals))
	heavy := make([]atomic.Int64, a.int("clients", 8))
	for lane := range lanes {
		go func() {
			for i := lane; i < len(arrivals); i += lanes {
				time.Sleep(time.Duration(arrivals[i] - now()))
				work(lightSteps)
				done[i].Store(now())
			}
		}()
	}
	for client := range heavy {
		go func() {
			for {
				work(heavySteps)
				time2 := now()
				if time2 >= end {
					return
				}
				if time2 >= begin {
					heavy[client].Add(1)
				}
				if think == 0 {
					runtime.Gosched()
				} else {
					time.Sleep(think)
				}
			}
		}()
	}
	time.Sleep(time.Duration(end - now()))
	tailReport(arrivals, done, heavy, seconds)
}

func tailReport(arrivals []int64, done, heavy []atomic.Int64, seconds float64) {
	end := now()
	unanswered := 0
	latency := make([]float64, len(arrivals))
	for i, arrival := range arrivals {
		answered := done[i].Load()
		if answered == 0 {
			unanswered++
			answered = end
		}
		latency[i] = float64(answered-arrival) / 1e6
	}
	total, least, most := int64(0), int64(0), int64(0)
	for client := range heavy {
		n := heavy[client].Load()
		if client == 0 || n < least {
			least = n
		}
		total, most = total+n, max(most, n)
	}
	newReport("tail").percentiles("light_ms_", latency).put("unanswered", float64(unanswered)).
		put("heavy_per_s", float64(total)/seconds).put("client_min", float64(least)).
		put("client_max", float64(most)).put("fair", float64(least)/max(float64(most), 1)).print()
}
