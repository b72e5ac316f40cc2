package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func yield(a args) {
	tasks, yields := a.int("tasks", 2), a.int("yields", 5_000_000)
	round := func(yields int) time.Duration {
		var all sync.WaitGroup
		begin := time.Now()
		for range tasks {
			all.Go(func() {
				for range yields {
					runtime.Gosched()
				}
			})
		}
		all.Wait()
		return time.Since(begin)
	}
	round(yields / 10)
	took := round(yields)
	newReport("yield").put("ns_per_switch", float64(took.Nanoseconds())/float64(tasks*yields)).print()
}

func spawn(a args) {
	n, batch := a.int("n", 1_000_000), a.int("batch", 1000)
	round := func(n int) {
		results := make([]int, batch)
		for range n / batch {
			var all sync.WaitGroup
			for i := range batch {
				all.Go(func() { results[i] = i })
			}
			all.Wait()
		}
	}
	round(n / 10)
	begin := time.Now()
	round(n)
	newReport("spawn").put("ns_per_task", float64(time.Since(begin).Nanoseconds())/float64(n)).print()
}

func leaf(result chan<- int, number, size int) {
	if size == 1 {
		result <- number
		return
	}
	children := make(chan int)
	for i := range 10 {
		go leaf(children, number+i*(size/10), size/10)
	}
	sum := 0
	for range 10 {
		sum += <-children
	}
	result <- sum
}

func skynet(a args) {
	leaves := a.int("leaves", 1_000_000)
	round := func(leaves int) {
		result := make(chan int)
		go leaf(result, 0, leaves)
		if sum := <-result; sum != leaves*(leaves-1)/2 {
			panic("wrong sum")
		}
	}
	round(leaves)
	begin := time.Now()
	round(leaves)
	newReport("skynet").put("ms", float64(time.Since(begin).Microseconds())/1e3).print()
}

func memory(a args) {
	n := a.int("n", 100_000)
	runtime.GC()
	before := memoryBytes()
	var parked atomic.Int64
	var all sync.WaitGroup
	wake := make([]chan struct{}, n)
	begin := time.Now()
	for i := range n {
		c := make(chan struct{})
		wake[i] = c
		all.Go(func() {
			parked.Add(1)
			<-c
		})
	}
	for parked.Load() < int64(n) {
		time.Sleep(100 * time.Microsecond)
	}
	park := time.Since(begin)
	time.Sleep(200 * time.Millisecond)
	bytes := (memoryBytes() - before) / float64(n)
	begin = time.Now()
	for _, c := range wake {
		c <- struct{}{}
	}
	all.Wait()
	newReport("memory").put("bytes_per_task", bytes).put("park_ms", park.Seconds()*1e3).
		put("wake_ms", time.Since(begin).Seconds()*1e3).print()
}

func wakeup(a args) {
	gap := time.Duration(a.int("gap_us", 1000)) * time.Microsecond
	limit := int64(20 * time.Millisecond)
	var ran atomic.Int64
	wake := make(chan struct{}, 1)
	byWake := a.text("via", "spawn") == "wake"
	if byWake {
		go func() {
			for range wake {
				ran.Store(now())
			}
		}()
	}
	var late []float64
	missed := 0
	for range a.int("samples", 1000) {
		spinFor(gap)
		ran.Store(0)
		begin := now()
		if byWake {
			wake <- struct{}{}
		} else {
			go func() { ran.Store(now()) }()
		}
		for ran.Load() == 0 && now() < begin+limit {
		}
		if ran.Load() == 0 {
			missed++
		}
		for ran.Load() == 0 {
			runtime.Gosched()
		}
		late = append(late, float64(ran.Load()-begin)/1e3)
	}
	newReport("wakeup").percentiles("us_", late).put("missed", float64(missed)).print()
}

// Turns of those beside the yielder: a runtime that never lets them run would look fast.
var turns atomic.Int64

func chain() {
	turns.Add(1)
	go chain()
}

func pair(viaSpawn bool) {
	if viaSpawn {
		done := make(chan struct{})
		for {
			go func() { done <- struct{}{} }()
			<-done
			turns.Add(1)
		}
	}
	ping, pong := make(chan int), make(chan int)
	go func() {
		for {
			pong <- <-ping
		}
	}()
	for {
		ping <- 1
		<-pong
		turns.Add(1)
	}
}

func yieldLatency(a args) {
	for range a.int("pairs", 0) {
		go pair(a.text("via", "chan") == "join")
	}
	for range a.int("chains", 0) {
		go chain()
	}
	var took []float64
	start := now()
	for end := start + int64(a.float("seconds", 5)*1e9); now() < end; {
		begin := now()
		runtime.Gosched()
		took = append(took, float64(now()-begin)/1e6)
	}
	perSecond := float64(turns.Load()) / (float64(now()-start) / 1e9)
	r := newReport("yieldlat").percentiles("ms_", took).put("turns_per_s", perSecond)
	r["stuck"] = perSecond < 1000
	r.print()
}

func idle(a args) {
	var all sync.WaitGroup
	for range 1000 {
		all.Go(runtime.Gosched)
	}
	all.Wait()
	time.Sleep(500 * time.Millisecond)
	span := a.float("seconds", 5)
	cpu, switches := usage()
	time.Sleep(time.Duration(span * 1e9))
	cpu2, switches2 := usage()
	newReport("idle").put("switches_per_s", float64(switches2-switches)/span).
		put("cpu_pct", (cpu2-cpu).Seconds()/span*100).print()
}
