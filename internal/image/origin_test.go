package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"holt"
	"holt/internal/engine/gvisor"
	"holt/internal/engine/machine/machinetest"
	"holt/internal/image"
)

// layer makes a layer of a tar file's bytes.
func layer(t *testing.T, data []byte) v1.Layer {
	t.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// entries makes a tar file; a content that starts with -> makes a symbolic link.
func entries(t *testing.T, files ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}
		if to, ok := strings.CutPrefix(f[1], "->"); ok {
			h.Typeflag, h.Linkname, h.Size, f[1] = tar.TypeSymlink, to, 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(f[1]))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// debian has the files by which an image of the guest's release is recognised.
func debian() [][2]string {
	return [][2]string{{"usr/lib/os-release", "VERSION_CODENAME=" + image.Suite + "\n"}, {"var/lib/dpkg/status", "Package: dash\n"}}
}

func ociImage(t *testing.T, env []string, layers ...v1.Layer) v1.Image {
	t.Helper()
	im, err := mutate.AppendLayers(empty.Image, layers...)
	if err == nil {
		im, err = mutate.ConfigFile(im, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: must(im.ConfigFile()).RootFS, Config: v1.Config{Env: env}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// names returns the names in a tar file, sorted.
func names(t *testing.T, file string) (all []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(all)
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h.Name)
	}
}

// TestOrigins gets one image from a registry, a layout and an archive.
func TestOrigins(t *testing.T) {
	lower := entries(t, append(debian(), [2]string{"srv/old", "gone"}, [2]string{"etc/resolv.conf", "x"}, [2]string{"dev/null", "x"}, [2]string{"home/agent/x", "x"},
		[2]string{"etc/apt/sources.list.d/their.sources", "x"}, [2]string{"bin", "->usr/bin"})...)
	im := ociImage(t, []string{"PATH=/opt/bin:/bin", "BAD=a\nb", "no name"}, layer(t, lower), layer(t, entries(t, [2]string{"srv/.wh.old", ""}, [2]string{"srv/new", "new"})))
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	if err := remote.Write(must(name.ParseReference(host+"/app:1")), im); err != nil {
		t.Fatal(err)
	}
	dir, archive := t.TempDir(), filepath.Join(t.TempDir(), "app.tar")
	l, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = l.AppendImage(im, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "1"}))
	}
	if err == nil {
		err = l.AppendImage(ociImage(t, nil, layer(t, entries(t, [2]string{"alpine", ""}))), layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "2"}))
	}
	if err == nil {
		err = tarball.WriteToFile(archive, must(name.NewTag("app:1")), im)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"bin", "srv/new", "usr/lib/os-release", "var/lib/dpkg/status"}
	for _, ref := range []string{"docker://" + host + "/app:1", "oci:" + dir + ":1", "docker-archive:" + archive} {
		file, env, err := image.Unpack(t, ref, 1<<20)
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		if got := names(t, file); !slices.Equal(got, want) || !slices.Equal(env, []string{"PATH=/opt/bin:/bin"}) {
			t.Errorf("%s: %q %q", ref, got, env)
		}
	}
	for ref, code := range map[string]holt.Code{
		"docker://" + host + "/app:3": holt.NotFound, "docker://127.0.0.1:1/app": holt.Unavailable,
		"oci:" + dir: holt.InvalidArgument, "oci:" + dir + ":3": holt.NotFound, "oci:" + dir + ":2": holt.Unsupported, "oci:/nothing/here": holt.NotFound,
		"docker-archive:/nothing/here": holt.NotFound, "docker-archive:" + dir + "/index.json": holt.InvalidArgument, "oci:relative": holt.InvalidArgument,
	} {
		if _, _, err := image.Unpack(t, ref, 1<<20); holt.CodeOf(err) != code || holt.AsError(err).Message == "" {
			t.Errorf("%s: %v: %v", ref, holt.CodeOf(err), err)
		}
	}
	hostile := filepath.Join(t.TempDir(), "hostile.tar")
	if err := tarball.WriteToFile(hostile, must(name.NewTag("app:1")), ociImage(t, nil, layer(t, entries(t, append(debian(), [2]string{"../../up", "x"})...)))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := image.Unpack(t, "docker-archive:"+hostile, 1<<20); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("an image with a name outside its root: %v", err)
	}
	// Files that upper layers replace, and those that are left out, are bounded too.
	large := layer(t, entries(t, [2]string{"tmp/zero", strings.Repeat("0", 80<<20)}))
	if err := tarball.WriteToFile(hostile, must(name.NewTag("app:1")), ociImage(t, nil, layer(t, entries(t, debian()...)), large)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := image.Unpack(t, "docker-archive:"+hostile, 1<<20); holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), "fit") {
		t.Errorf("an image with large files that are left out: %v", err)
	}
	if _, _, err := image.Unpack(t, "docker-archive:"+archive, 1024); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("an image that does not fit: %v", err)
	}
}

// TestComputerFromOCI builds an image with services from an OCI image without systemd, and
// boots it in a sandbox.
func TestComputerFromOCI(t *testing.T) {
	t.Parallel() // it waits for the network and the disk
	tree, err := os.ReadFile(image.MinimalTree(t))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := strings.TrimPrefix(server.URL, "http://") + "/team/app:1.0"
	if err := remote.Write(must(name.ParseReference(ref)), ociImage(t, []string{"PATH=/opt/app/bin:/usr/sbin:/usr/bin:/sbin:/bin", "APP=1.0"},
		layer(t, tree), layer(t, entries(t, [2]string{"srv/site/index.html", "hello"})))); err != nil {
		t.Fatal(err)
	}
	recipe := filepath.Join(t.TempDir(), "app.json")
	if err := os.WriteFile(recipe, []byte(`{
  "name": "app", "from": "docker://`+ref+`", "disk_size_mb": 1024,
  "packages": ["busybox"],
  "setup": ["id=$(awk 'NR == 1 { print $2 }' /proc/self/uid_map); test $id -gt 0 # the host's root is not in there"],
  "users": [{"name": "agent", "uid": 1000, "home": "/home/agent"}],
  "kernel_args": ["kept=yes"],
  "services": {"define": [
    {"name": "web", "command": "sleep 1; exec busybox httpd -f -p $PORT -h /srv/site", "user": "agent", "directory": "/srv/site",
     "environment": {"PORT": "8000"}, "restart": "always", "ready": {"port": 8000}},
    {"name": "once", "command": "echo \"100% $APP\" > /srv/once; exec sleep 100000", "after": ["web"], "ready": {"command": "test -s /srv/once # there"}}
  ]}
}`), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	store, err := image.Open(image.WithKernel(t), image.Options{GuestBinary: must(os.ReadFile(machinetest.Agent(t)))})
	if err != nil {
		t.Fatal(err)
	}
	im, err := store.Build(ctx, recipe, nil)
	if err != nil {
		t.Fatalf("%v\n%+v", err, holt.AsError(err).Detail)
	}
	if !slices.Contains(im.Args, "kept=yes") {
		t.Errorf("the kernel's arguments are %q", im.Args)
	}
	guest := t.TempDir()
	if err := os.WriteFile(filepath.Join(guest, "holt-guest"), must(os.ReadFile(machinetest.Agent(t))), 0o755); err != nil {
		t.Fatal(err)
	}
	engine, err := gvisor.Open(gvisor.Options{Program: machinetest.Holt(t), Guest: guest})
	if err != nil {
		t.Fatal(err)
	}
	c, _ := boot(ctx, t, engine, im)
	for _, question := range [][2]string{
		{up, "running"},
		{"systemctl is-active web once; systemctl show -P After once | grep -o web.service", "active\nactive\nweb.service"},
		{"cat /srv/once", "100% 1.0"},
		{"getent passwd 1000 | cut -d: -f1,6; ls -d /home/node; id -u agent", "agent:/home/agent\n/home/node\n1000"},
		{"exec 3<>/dev/tcp/127.0.0.1/8000; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; tail -n 1 <&3", "hello"},
		{"stat -c %U /proc/$(systemctl show -P MainPID web)", "agent"},
		{"systemctl kill -s KILL web; until systemctl is-active -q web && test $(systemctl show -P NRestarts web) = 1; do sleep 0.2; done; echo again", "again"},
		{"echo $APP; echo $PATH", "1.0\n/opt/app/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	} {
		if got := run(ctx, t, c, question[0]); got != question[1] {
			t.Errorf("%s: %q, want %q", question[0], got, question[1])
		}
	}
	run(ctx, t, c, "systemd-run --quiet --unit=broken sh -c 'echo no such luck; exit 3'; until systemctl is-failed -q broken; do sleep 0.2; done")
	is, err := c.Ready(ctx, append(im.Units, "broken.service", "nowhere.service"), time.Minute)
	if err != nil || !slices.Equal(im.Units, []string{"web.service", "once.service"}) || len(is.Unready) != 2 {
		t.Fatalf("ready: %+v, %v; units of the image: %v", is, err, im.Units)
	}
	if u := is.Unready[0]; u.Name != "broken.service" || u.State != "failed (failed)" || !strings.Contains(u.Log, "no such luck") {
		t.Errorf("a service that failed: %+v", u)
	}
	if u := is.Unready[1]; u.Name != "nowhere.service" || u.State != "not-found" {
		t.Errorf("a service that does not exist: %+v", u)
	}
}
