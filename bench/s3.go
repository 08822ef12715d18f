package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bucket is as much of an object store as s3fs needs to be measured: one
// bucket, in memory, on the loopback, that checks no signatures. Its answers
// take no time, so the figures flatter s3fs.
type bucket struct {
	mu      sync.Mutex
	objects map[string]*object
}

type object struct {
	data   []byte
	header http.Header // Content-Type and what the client calls x-amz-meta-…
	time   time.Time
}

const (
	bucketName = "bench"
	maxObject  = 2 << 30 // bytes
)

// ServeHTTP implements [http.Handler].
func (s *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, ok := strings.CutPrefix(r.URL.Path, "/"+bucketName)
	key = strings.TrimPrefix(key, "/")
	switch {
	case !ok:
		http.Error(w, "no such bucket", http.StatusNotFound)
	case key == "" && r.Method == http.MethodGet:
		s.list(w, r.URL.Query())
	case key == "":
		w.WriteHeader(http.StatusOK)
	case r.Method == http.MethodPut:
		s.put(w, r, key)
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.objects, key)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		s.get(w, r, key)
	}
}

func (s *bucket) get(w http.ResponseWriter, r *http.Request, key string) {
	s.mu.Lock()
	o := s.objects[key]
	s.mu.Unlock()
	if o == nil {
		http.Error(w, "no such key", http.StatusNotFound)
		return
	}
	maps.Copy(w.Header(), o.header)
	w.Header().Set("ETag", `"0"`)
	http.ServeContent(w, r, "", o.time, bytes.NewReader(o.data))
}

// put stores what is sent, or a copy of what is there with other headers.
func (s *bucket) put(w http.ResponseWriter, r *http.Request, key string) {
	o := &object{header: http.Header{}, time: time.Now()}
	for name, values := range r.Header {
		if name == "Content-Type" || strings.HasPrefix(name, "X-Amz-Meta-") {
			o.header[name] = values
		}
	}
	if from := r.Header.Get("X-Amz-Copy-Source"); from != "" {
		from, err := url.PathUnescape(from)
		s.mu.Lock()
		source := s.objects[strings.TrimPrefix(strings.TrimPrefix(from, "/"), bucketName+"/")]
		s.mu.Unlock()
		if err != nil || source == nil {
			http.Error(w, "no such source", http.StatusNotFound)
			return
		}
		o.data = source.data
		io.WriteString(w, "<CopyObjectResult><ETag>\"0\"</ETag></CopyObjectResult>")
	} else {
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxObject))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		o.data = data
		w.Header().Set("ETag", `"0"`)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = o
}

// listed is the answer to a list of a bucket.
type listed struct {
	XMLName        xml.Name `xml:"ListBucketResult"`
	Name           string
	Prefix         string
	IsTruncated    bool
	Contents       []listedObject
	CommonPrefixes []listedPrefix
}

type listedObject struct {
	Key          string
	LastModified string
	ETag         string
	Size         int
}

type listedPrefix struct{ Prefix string }

// list answers in one page.
func (s *bucket) list(w http.ResponseWriter, q url.Values) {
	out := listed{Name: bucketName, Prefix: q.Get("prefix")}
	s.mu.Lock()
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		rest, ok := strings.CutPrefix(key, out.Prefix)
		if !ok {
			continue
		}
		if d := q.Get("delimiter"); d != "" {
			if below, _, deeper := strings.Cut(rest, d); deeper {
				p := listedPrefix{out.Prefix + below + d}
				if n := len(out.CommonPrefixes); n == 0 || out.CommonPrefixes[n-1] != p {
					out.CommonPrefixes = append(out.CommonPrefixes, p)
				}
				continue
			}
		}
		o := s.objects[key]
		out.Contents = append(out.Contents, listedObject{key, o.time.UTC().Format(time.RFC3339), `"0"`, len(o.data)})
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/xml")
	xml.NewEncoder(w).Encode(out)
}

// openS3fs mounts a bucket that lives in this process with s3fs.
func openS3fs(ctx context.Context, b *bench, below string, p *place) error {
	path, err := exec.LookPath("s3fs")
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: &bucket{objects: map[string]*object{}}, ReadHeaderTimeout: time.Minute}
	go server.Serve(l)
	b.own("the bucket", server.Close)
	keys := filepath.Join(below, "keys")
	if err := os.WriteFile(keys, []byte("bench:bench\n"), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(path, bucketName, p.dir, "-f", "-o", "url=http://"+l.Addr().String(), "-o", "use_path_request_style",
		"-o", "passwd_file="+keys, "-o", "nomultipart", "-o", "use_cache="+filepath.Join(below, "cache"))
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	if err := cmd.Start(); err != nil {
		return err
	}
	b.own("s3fs", ending(cmd, p.dir))
	return awaitMount(ctx, p.dir)
}
