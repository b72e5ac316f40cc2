package main

// HTTP hello: net/http, loaded by wrk from another process.

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

func httpHello(a args) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	hello := []byte("Hello, world!")
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(hello)
	}))
	load := func(seconds int) (string, bool) {
		out, err := exec.Command("wrk", "-t1", "--latency", "-c", strconv.Itoa(a.int("connections", 64)),
			"-d", fmt.Sprintf("%ds", seconds), "http://"+listener.Addr().String()+"/").Output()
		return string(out), err == nil
	}
	if _, ok := load(1); !ok {
		fmt.Println(`{"scenario":"http","unsupported":true}`)
		return
	}
	cpu := func() float64 {
		var u syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		us := func(t syscall.Timeval) float64 { return float64(t.Sec)*1e6 + float64(t.Usec) }
		return us(u.Utime) + us(u.Stime)
	}
	before := cpu()
	said, _ := load(a.int("seconds", 5))
	used := cpu() - before
	head, _, _ := strings.Cut(said, " requests in")
	words := strings.Fields(head)
	requests, _ := strconv.ParseFloat(words[len(words)-1], 64)
	errors := strings.Contains(said, "Socket errors") || strings.Contains(said, "Non-2xx")
	fmt.Printf("{\"scenario\":\"http\",\"requests_per_s\":%g,\"us_p50\":%g,\"us_p99\":%g,\"cpu_us_per_request\":%g,\"errors\":%v}\n",
		wrkFigure(said, "Requests/sec:"), wrkFigure(said, "50%"), wrkFigure(said, "99%"), used/max(requests, 1), errors)
	os.Exit(0)
}

// The number after a word; times in µs.
func wrkFigure(said, word string) float64 {
	_, rest, _ := strings.Cut(said, word)
	words := strings.Fields(rest)
	if len(words) == 0 {
		return 0
	}
	for _, unit := range []struct {
		name string
		by   float64
	}{{"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"", 1}} {
		if digits, ok := strings.CutSuffix(words[0], unit.name); ok {
			if value, err := strconv.ParseFloat(digits, 64); err == nil {
				return value * unit.by
			}
		}
	}
	return 0
}
