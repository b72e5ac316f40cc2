package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

func perOp(begin time.Time, n int) float64 {
	return float64(time.Since(begin).Nanoseconds()) / float64(n)
}

func pingpong(a args) {
	n := a.int("n", 1_000_000)
	ping, pong := make(chan int), make(chan int)
	go func() {
		for value := range ping {
			pong <- value
		}
	}()
	round := func(n int) {
		for i := range n {
			ping <- i
			<-pong
		}
	}
	round(n / 10)
	begin := time.Now()
	round(n)
	newReport("pingpong").put("ns_per_round_trip", perOp(begin, n)).print()
}

func fanIn(a args) {
	n, producers := a.int("n", 2_000_000), a.int("producers", 8)
	c := make(chan uint64, a.int("cap", 128))
	round := func(n int) {
		for range producers {
			go func() {
				for i := range n / producers {
					c <- uint64(i)
				}
			}()
		}
		for range n / producers * producers {
			<-c
		}
	}
	round(n / 10)
	begin := time.Now()
	round(n)
	newReport("fanin").put("m_msgs_per_s", float64(n)/time.Since(begin).Seconds()/1e6).print()
}

func chanSelf(a args) {
	n := a.int("n", 10_000_000)
	c := make(chan uint64, 128)
	round := func(n int) {
		for i := range n {
			c <- uint64(i)
			<-c
		}
	}
	round(n / 10)
	begin := time.Now()
	round(n)
	newReport("chanself").put("ns_per_pair", perOp(begin, n)).print()
}

func contend(tasks, n int) float64 {
	var lock sync.Mutex
	var all sync.WaitGroup
	count := 0
	begin := time.Now()
	for range tasks {
		all.Go(func() {
			for range n / tasks {
				lock.Lock()
				count++
				lock.Unlock()
			}
		})
	}
	all.Wait()
	return perOp(begin, n)
}

func mutex(a args) {
	tasks, n := a.int("tasks", 8), a.int("n", 10_000_000)
	contend(tasks, n/10)
	newReport("mutex").put("ns_per_op", contend(tasks, n)).print()
}

func sweep(a args) {
	n := a.int("n", 4_000_000)
	r := newReport("sweep")
	best, worst := 1e18, 0.0
	contend(2, n/4) // Warms up.
	for _, tasks := range []int{1, 2, 4, 8, 16, 32, 64} {
		ns := contend(tasks, n)
		best, worst = min(best, ns), max(worst, ns)
		r.put(fmt.Sprint("ns_", tasks), ns)
	}
	r.put("lowest_pct_of_peak", best/worst*100).print()
}

func fairness(a args) {
	hold := time.Duration(a.int("hold_us", 100)) * time.Microsecond
	var lock sync.Mutex
	var over atomic.Bool
	go func() {
		for !over.Load() {
			lock.Lock()
			spinFor(hold)
			lock.Unlock()
		}
	}()
	var waits []float64
	n := a.int("n", 500)
	for limit := now() + int64(5*time.Second); len(waits) < n && now() < limit; {
		time.Sleep(time.Millisecond)
		begin := now()
		lock.Lock()
		waits = append(waits, float64(now()-begin)/1e3)
		lock.Unlock()
	}
	over.Store(true)
	newReport("fairness").percentiles("us_", waits).print()
}

// A writer beside a flood of readers, in units of one reader's phase as it really was.
func rwFairness(a args) {
	hold := time.Duration(a.int("hold_us", 2000)) * time.Microsecond
	readers := a.int("readers", 4)
	var lock sync.RWMutex
	var held, phases atomic.Int64
	for seed := range readers {
		go func() {
			time.Sleep(hold * time.Duration(seed) / time.Duration(readers))
			for {
				lock.RLock()
				begin := now()
				time.Sleep(hold)
				held.Add(now() - begin)
				phases.Add(1)
				lock.RUnlock()
			}
		}()
	}
	var waits []float64
	dice := rng(1)
	for range a.int("n", 300) {
		time.Sleep(dice.sleep() / 5)
		begin := now()
		lock.Lock()
		waits = append(waits, float64(now()-begin))
		lock.Unlock()
	}
	phase := float64(held.Load()) / float64(phases.Load())
	for i := range waits {
		waits[i] /= phase
	}
	newReport("rwfair").percentiles("phases_", waits).put("phase_ms", phase/1e6).print()
}

func timers(a args) {
	n, times := a.int("n", 100_000), a.int("times", 10)
	late := make([]float64, n*times)
	var all sync.WaitGroup
	begin := time.Now()
	for seed := range n {
		all.Go(func() {
			dice := rng(seed)
			for i := range times {
				span := dice.sleep()
				begin := time.Now()
				time.Sleep(span)
				late[seed*times+i] = (time.Since(begin) - span).Seconds() * 1e3
			}
		})
	}
	all.Wait()
	total := time.Since(begin)
	newReport("timers").put("total_ms", total.Seconds()*1e3).percentiles("late_ms_", late).print()
}

func idleSleep(a args) {
	span := time.Duration(a.int("us", 100)) * time.Microsecond
	var took []float64
	for range a.int("n", 2000) {
		begin := now()
		time.Sleep(span)
		took = append(took, float64(now()-begin)/1e3)
	}
	newReport("idlesleep").percentiles("us_", took).print()
}

func select2(a args) {
	n := a.int("n", 10_000_000)
	x, y := make(chan int, 1), make(chan int, 1)
	misses := 0
	round := func(n int) {
		for range n {
			select {
			case <-x:
			case <-y:
			default:
				misses++
			}
		}
	}
	round(n / 10)
	begin := time.Now()
	round(n)
	newReport("select2").put("ns_per_select", perOp(begin, n)).print()
}

func select4(a args) {
	n := a.int("n", 1_000_000)
	var c [4]chan int
	for i := range c {
		c[i] = make(chan int)
	}
	round := func(n int) {
		go func() {
			for i := range n {
				c[i%4] <- i
			}
		}()
		for range n {
			select {
			case <-c[0]:
			case <-c[1]:
			case <-c[2]:
			case <-c[3]:
			}
		}
	}
	round(n / 10)
	begin := time.Now()
	round(n)
	newReport("select4").put("ns_per_select", perOp(begin, n)).print()
}
