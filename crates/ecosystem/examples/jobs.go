// A job server: a pool of workers factors numbers that come in over HTTP. The program runs it, sends it work, shows what came
// out, and stops it. The same program for runnext is jobs.rs, line by line where the languages allow.
//
//	go run crates/ecosystem/examples/jobs.go
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

type Job struct {
	ID      int
	Number  uint64
	Factors []uint64
	Error   string
	Done    bool
}

type Server struct {
	mu      sync.Mutex
	jobs    map[int]*Job
	queue   chan *Job
	workers sync.WaitGroup
	limit   time.Duration
}

func NewServer(ctx context.Context, workers int, limit time.Duration) *Server {
	s := &Server{jobs: map[int]*Job{}, queue: make(chan *Job, 64), limit: limit}
	for range workers {
		s.workers.Go(func() { s.work(ctx) })
	}
	return s
}

func (s *Server) work(ctx context.Context) {
	for {
		select {
		case job := <-s.queue:
			limited, cancel := context.WithTimeout(ctx, s.limit)
			factors, err := factor(limited, job.Number)
			cancel()
			s.mu.Lock()
			job.Factors, job.Done = factors, true
			if err != nil {
				job.Error = err.Error()
			}
			s.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

func factor(ctx context.Context, n uint64) ([]uint64, error) {
	var factors []uint64
	for d := uint64(2); d*d <= n; d++ {
		if d%100_000 == 0 && ctx.Err() != nil {
			return factors, ctx.Err()
		}
		for n%d == 0 {
			factors = append(factors, d)
			n /= d
		}
	}
	if n > 1 {
		factors = append(factors, n)
	}
	return factors, nil
}

var errBusy = errors.New("too many jobs")

func (s *Server) submit(n uint64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job := &Job{ID: len(s.jobs) + 1, Number: n}
	select {
	case s.queue <- job:
		s.jobs[job.ID] = job
		return job.ID, nil
	default:
		return 0, errBusy
	}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/submit":
		n, err := strconv.ParseUint(r.URL.Query().Get("n"), 10, 64)
		if err != nil {
			http.Error(w, "n is not a number", http.StatusBadRequest)
			return
		}
		id, err := s.submit(n)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, id)
	case "/job":
		id, _ := strconv.Atoi(r.URL.Query().Get("id"))
		s.mu.Lock()
		defer s.mu.Unlock()
		job, ok := s.jobs[id]
		if !ok {
			http.NotFound(w, r)
			return
		}
		json.NewEncoder(w).Encode(job)
	default:
		http.NotFound(w, r)
	}
}

func get(url string) string {
	response, err := http.Get(url)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	server := NewServer(ctx, 4, 300*time.Millisecond)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go http.Serve(listener, server)
	base := "http://" + listener.Addr().String()

	numbers := []uint64{12, 97, 600851475143, 1000000007 * 998244353, 18446744073709551557}
	for _, n := range numbers {
		fmt.Printf("%d is job %s\n", n, get(fmt.Sprintf("%s/submit?n=%d", base, n)))
	}
	ticker, deadline := time.NewTicker(50*time.Millisecond), time.After(5*time.Second)
	for open := len(numbers); open > 0; {
		select {
		case <-ticker.C:
			open = 0
			server.mu.Lock()
			for _, job := range server.jobs {
				if !job.Done {
					open++
				}
			}
			server.mu.Unlock()
		case <-deadline:
			log.Fatal("still not done")
		}
	}
	for id := range numbers {
		fmt.Print(get(fmt.Sprintf("%s/job?id=%d", base, id+1)))
	}
	stop()
	server.workers.Wait()
}
