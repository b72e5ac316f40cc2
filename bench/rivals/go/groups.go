package main

// The cpuworker experiment, in process: light requests at random times beside heavy ones. Go has no groups: the baseline.

import (
	"math"
	"sync/atomic"
	"time"
)

func delay1ms() {
	answer := make(chan struct{})
	go func() {
		time.Sleep(time.Millisecond)
		answer <- struct{}{}
	}()
	<-answer
}

func groupMixed(a args) {
	const check = 10_000 // steps between two looks at the clock, as the other programs have them
	seconds, rate := a.float("seconds", 4), a.float("rate", 1000)
	clients := int(6.25 * float64(a.int("procs", 2)))
	if a.text("mode", "plain") == "alone" {
		clients = 0
	}
	var stop atomic.Bool
	var done atomic.Int64
	cpu, _ := usage()
	begun := now()
	for range clients {
		go func() {
			for !stop.Load() {
				work(check)
				done.Add(1)
			}
		}()
	}
	time.Sleep(200 * time.Millisecond)
	dice := rng(7)
	answers := make(chan float64, 1<<16)
	begin := now()
	at, n := begin, 0
	for at < begin+int64(seconds*1e9) {
		at += int64(-math.Log(dice.unit()) / rate * 1e9)
		time.Sleep(time.Duration(at - now()))
		n++
		go func(at int64) {
			delay1ms()
			answers <- float64(now()-at) / 1e6
		}(at)
	}
	late := make([]float64, n)
	for i := range late {
		late[i] = <-answers
	}
	stop.Store(true)
	wall := float64(now()-begun) / 1e9
	used, _ := usage()
	newReport("group-mixed").percentiles("light_ms_", late).put("heavy_per_s", float64(done.Load())/wall).
		put("busy_percent", 100*(used-cpu).Seconds()/wall/float64(a.int("procs", 2))).print()
}
