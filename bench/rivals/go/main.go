// The benchmark scenarios on goroutines: `rival <scenario> [key=value…]` prints one JSON line.
package main

import (
	"fmt"
	"os"
	"runtime"
)

var scenarios = map[string]func(args){
	"yield":       yield,
	"spawn":       spawn,
	"skynet":      skynet,
	"memory":      memory,
	"wakeup":      wakeup,
	"yieldlat":    yieldLatency,
	"idle":        idle,
	"preempt":     preempt,
	"blocking":    blocking,
	"gap":         gap,
	"lost":        lost,
	"syscall":     syscallCost,
	"tail":        tail,
	"pingpong":    pingpong,
	"fanin":       fanIn,
	"chanself":    chanSelf,
	"mutex":       mutex,
	"sweep":       sweep,
	"fairness":    fairness,
	"rwfair":      rwFairness,
	"timers":      timers,
	"idlesleep":   idleSleep,
	"select2":     select2,
	"select4":     select4,
	"echo":        echo,
	"connections": echo,
	"storm":       echo,
	"tailtcp":     tailTCP,
	"http":        httpHello,
	"group-mixed": groupMixed,
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: rival <scenario> [key=value…]")
		os.Exit(2)
	}
	a := parse(os.Args[2:])
	runtime.GOMAXPROCS(a.int("procs", 2))
	run, ok := scenarios[os.Args[1]]
	if !ok {
		fmt.Printf("{\"scenario\":%q,\"unsupported\":true}\n", os.Args[1])
		return
	}
	run(a)
}
