package main

// What the Rust programs have in the `harness` crate: the same work, dice, percentiles and lateness rule.

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type args map[string]string

func parse(words []string) args {
	a := args{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			fmt.Fprintf(os.Stderr, "'%s' is not key=value\n", word)
			os.Exit(2)
		}
		a[key] = value
	}
	return a
}

func (a args) float(key string, otherwise float64) float64 {
	text, ok := a[key]
	if !ok {
		return otherwise
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s=%s: not a usable value\n", key, text)
		os.Exit(2)
	}
	return value
}

func (a args) int(key string, otherwise int) int {
	return int(a.float(key, float64(otherwise)))
}

func (a args) text(key, otherwise string) string {
	if text, ok := a[key]; ok {
		return text
	}
	return otherwise
}

type report map[string]any

func newReport(scenario string) report { return report{"scenario": scenario} }

func (r report) put(key string, value float64) report {
	r[key] = value
	return r
}

func (r report) percentiles(prefix string, samples []float64) report {
	slices.Sort(samples)
	r[prefix+"samples"] = len(samples)
	if len(samples) == 0 {
		return r
	}
	for _, q := range []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1}} {
		r[prefix+q.name] = percentile(samples, q.q)
	}
	return r
}

func (r report) print() {
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// Nearest rank, of sorted samples.
func percentile(sorted []float64, q float64) float64 {
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

var sink uint64

// Burns CPU: a fixed number of dependent steps.
//
//go:noinline
func work(steps int) {
	x := uint64(0x9e3779b97f4a7c15) ^ sink&1
	for range steps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	if x == 0 {
		sink = x
	}
}

var epoch = time.Now()

// Monotonic nanoseconds.
func now() int64 { return int64(time.Since(epoch)) }

func spinFor(span time.Duration) {
	for end := now() + int64(span); now() < end; {
	}
}

type rng uint64

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

func (r *rng) unit() float64 { return float64((r.next()>>11)+1) / (1 << 53) }

func (r *rng) sleep() time.Duration { return time.Duration(1000+r.next()%49000) * time.Microsecond }

// Resident memory plus page tables.
func memoryBytes() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	kib := 0.0
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS:") || strings.HasPrefix(line, "VmPTE:") {
			value, _ := strconv.ParseFloat(strings.Fields(line)[1], 64)
			kib += value
		}
	}
	return kib * 1024
}

func usage() (cpu time.Duration, switches int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), u.Nvcsw + u.Nivcsw
}

// The log of a goroutine that wants to run every millisecond. A tick late by n periods counts as n more.
type ticks struct {
	start, period, window int64
	at                    []int64
}

func startTicks(window time.Duration) *ticks {
	t := &ticks{start: now(), period: int64(time.Millisecond), window: int64(window)}
	t.at = make([]int64, 0, t.window/t.period+2)
	return t
}

func (t *ticks) run() {
	for {
		time.Sleep(time.Duration(t.period))
		time := now()
		if time >= t.start+t.window {
			return
		}
		t.at = append(t.at, time)
	}
}

func (t *ticks) report(scenario string) {
	end := t.start + t.window
	var late []float64
	last, widest := t.start, int64(0)
	for i, time := range append(t.at, end) {
		widest = max(widest, time-last)
		lateness := max(time-last-t.period, 0)
		if i < len(t.at) || lateness > 0 {
			late = append(late, float64(lateness)/1e6)
		}
		for lateness > t.period {
			lateness -= t.period
			late = append(late, float64(lateness)/1e6)
		}
		last = time
	}
	r := newReport(scenario).percentiles("late_ms_", late).put("ticks", float64(len(t.at)))
	r["stuck"] = widest*2 > t.window
	r.print()
}
