package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var seed = flag.Int64("seed", 0, "seed of everything random in the stories; 0: the same each time, or in a soak another")

// binDir holds the holt binary under test.
var binDir string

func TestMain(m *testing.M) {
	flag.Parse()
	switch {
	case *seed != 0:
	case soak():
		*seed = time.Now().UnixNano() % 1e9
	default:
		*seed = 1
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holt-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binDir = dir
	builds := []struct{ out, pkg string }{
		{"../cmd/holt/guest/holt-guest", "holt/cmd/holt-guest"}, // embedded in holt
		{filepath.Join(dir, "holt"), "holt/cmd/holt"},
	}
	if soak() { // what the containers of the story about Docker run
		builds = append(builds, struct{ out, pkg string }{filepath.Join(dir, "site"), "holt/e2e/testdata/docker/site"})
	}
	for _, b := range builds {
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.out, b.pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build", b.pkg, err)
			return 1
		}
	}
	return m.Run()
}

// TestLocal runs the stories that need no virtual machine.
func TestLocal(t *testing.T) {
	t.Parallel()
	stories(t, "testdata/local", "local")
}

// TestMachine runs the stories on real machines, with the images of
// HOLT_IMAGE_DIR (built by `holt image build` when they are missing).
func TestMachine(t *testing.T) {
	t.Parallel()
	requireImages(t, "base", "coding-agent")
	stories(t, "testdata/machine", cmp.Or(os.Getenv("HOLT_TEST_ENGINE"), "gvisor"))
	stories(t, "testdata/qemu", "qemu")
	if soak() { // the images alone take minutes, and so does Docker under software emulation
		requireImages(t, "browser", "docker")
		stories(t, "testdata/browser", "qemu")
		stories(t, "testdata/docker", "qemu")
	}
}

func stories(t *testing.T, dir, engine string) {
	t.Logf("counts: soak=%v seed=%d", soak(), *seed)
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(env *testscript.Env) error { return setup(env, engine) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon":     cmdDaemon,
			"killvm":     cmdKillVM,
			"eventually": cmdEventually,
			"nothing":    cmdNothing,
			"crashes":    cmdCrashes,
			"smalldisk":  cmdSmallDisk,
		},
	})
}

// requireImages builds what the machine stories boot. It is an error, not a
// skip, if that fails.
func requireImages(t *testing.T, templates ...string) {
	t.Helper()
	for _, template := range templates {
		cmd := exec.Command(filepath.Join(binDir, "holt"), "image", "build", template)
		cmd.Env = append(os.Environ(), "HOLT_DATA_DIR="+t.TempDir(), "HOLT_IMAGE_DIR="+imageDir(t))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build image %s: %v\n%s", template, err, out)
		}
	}
}

func imageDir(t testing.TB) string {
	if dir := os.Getenv("HOLT_IMAGE_DIR"); dir != "" {
		return dir
	}
	dir, err := filepath.Abs("../.cache/images")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func soak() bool { return os.Getenv("HOLT_SOAK") != "" }

// Counts returns the sizes of the stories, small or full, as environment
// variables of the scripts. Of a number that ends with LEAST something must be more.
func Counts(full bool) []string {
	if full {
		return []string{
			"BIG_FILE_MB=2560", // larger than the 2 GiB root disk
			"COMPUTERS=10",     // created at once on the local engine
			"DAEMON_KILLS=100", // SIGKILLs of the daemon under load
			"FORKS=20",         // of one workspace, edited at once
			"VM_KILLS=10",      // SIGKILLs of the machine under load
			"PROJECT_DIRS=600", // of 50 files each
			"VENV=",            // a whole virtual environment, pip and all
			"NPM_PACKAGE=express@4", "NPM_LEAST=58",
			"BODY_MB=1024",        // through a preview of a local computer
			"MACHINE_BODY_MB=128", // from a machine; a quarter of it to there
		}
	}
	return []string{
		"BIG_FILE_MB=16", // a minute of the emulated processor for each 64
		"COMPUTERS=10",
		"DAEMON_KILLS=3",
		"FORKS=4",
		"VM_KILLS=1",
		"PROJECT_DIRS=20",
		"VENV=--without-pip", // pip alone takes minutes to unpack under emulation
		"NPM_PACKAGE=connect@3", "NPM_LEAST=10",
		"BODY_MB=256",
		"MACHINE_BODY_MB=16",
	}
}

func setup(env *testscript.Env, engine string) error {
	data := filepath.Join(env.WorkDir, "data")
	images, err := filepath.Abs("../.cache/images")
	if err != nil {
		return err
	}
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	if dir := os.Getenv("HOLT_IMAGE_DIR"); dir != "" {
		images = dir
	}
	env.Vars = append(env.Vars,
		"PATH="+binDir+":"+os.Getenv("PATH"),
		"HOME="+env.WorkDir,
		"HOLT_DATA_DIR="+data,
		"HOLT_SOCKET="+filepath.Join(data, "holt.sock"),
		"HOLT_IMAGE_DIR="+images,
		"HOLT_ENGINE="+engine,
		"CHECKOUT="+root,
		"HOLT="+filepath.Join(binDir, "holt"),
		fmt.Sprintf("SEED=%d", *seed),
	)
	env.Vars = append(env.Vars, Counts(soak())...)
	for _, v := range os.Environ() { // proxies and certificates of the host
		name, _, _ := strings.Cut(v, "=")
		if strings.Contains(strings.ToLower(name), "proxy") || strings.Contains(name, "CERT") || strings.HasPrefix(name, "CA") {
			env.Vars = append(env.Vars, v)
		}
	}
	d := &daemon{env: env, data: data, engine: engine}
	env.Values[daemonKey{}] = d
	env.Defer(d.end)
	return nil
}
