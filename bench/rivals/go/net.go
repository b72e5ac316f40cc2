// Sockets: the servers of the network scenarios. The load generator is bench-load, beside this program or in BENCH_LOAD.
package main

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

func echo(args) {
	serve(func(c net.Conn) {
		buf := make([]byte, 256)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if _, err = c.Write(buf[:n]); err != nil {
				return
			}
		}
	})
}

func tailTCP(a args) {
	stepNs := a.float("step_ns", 1.9)
	light := int(a.float("light_us", 50) * 1e3 / stepNs)
	heavy := int(a.float("heavy_ms", 30) * 1e6 / stepNs)
	serve(func(c net.Conn) {
		b := make([]byte, 1)
		for {
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			if b[0] == 'h' {
				work(heavy)
			} else {
				work(light)
			}
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
}

func serve(connection func(net.Conn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				panic(err)
			}
			go func() {
				defer c.Close()
				connection(c)
			}()
		}
	}()
	load := os.Getenv("BENCH_LOAD")
	if load == "" {
		load = filepath.Join(filepath.Dir(os.Args[0]), "release", "bench-load")
	}
	cmd := exec.Command(load, append(os.Args[1:], "addr="+l.Addr().String())...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		panic(err)
	}
	os.Exit(0)
}
