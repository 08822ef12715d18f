// Command site is the services of the story docker, in an image of its own: store
// counts who asks it, in memory and in a file of /data; web passes on what store says; static
// says what /static has. check is their health check: it succeeds when the service says who it is.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

func main() {
	if os.Args[1] == "check" {
		if resp, err := http.Get("http://localhost:8000/health"); err != nil || resp.StatusCode != http.StatusOK {
			os.Exit(1)
		}
		return
	}
	mu, n := sync.Mutex{}, 0
	serve := map[string]func() (string, error){
		"store": func() (string, error) {
			mu.Lock()
			defer mu.Unlock()
			n++
			return fmt.Sprintf("store %d\n", n), note(n)
		},
		"web": func() (string, error) {
			resp, err := http.Get("http://store:8000/")
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			said, err := io.ReadAll(resp.Body)
			return "web of " + string(said), err
		},
		"static": func() (string, error) {
			said, err := os.ReadFile("/static")
			return os.Getenv("GREETING") + " " + string(said), err
		},
	}[os.Args[1]]
	http.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		said, err := serve()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		io.WriteString(w, said)
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":8000", nil))
	os.Exit(1)
}

// note adds a line to a file of the workspace.
func note(n int) error {
	f, err := os.OpenFile("/data/counts", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, n)
	return err
}
