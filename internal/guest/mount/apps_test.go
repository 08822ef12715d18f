package mount

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holt/internal/workspace"
)

// need fails a test if a program is not installed.
func need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatalf("%s is not installed: scripts/test-deps installs what the tests use", p)
		}
	}
}

func TestGit(t *testing.T) { onBoth(t, git) }

func git(t *testing.T, _ *workspace.Workspace, dir string) {
	need(t, "git")
	out := sh(t, dir, `export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
		git init -q repo; cd repo
		git config user.email a@example.org; git config user.name a
		for d in $(seq 12); do mkdir -p src/$d; for f in $(seq 12); do echo "$d $f" > src/$d/$f.txt; done; done
		git add .; git commit -qm first
		git checkout -q -b other; sed -i s/1/one/ src/1/*.txt; git commit -qam second
		git checkout -q -; git merge -q other; git gc -q
		git fsck --strict; git status --porcelain
		git clone -q . ../clone; diff -r --exclude .git . ../clone; git -C ../clone status --porcelain`)
	if s := strings.TrimSpace(out); s != "" {
		t.Errorf("git says %q", s)
	}
}

// TestSQLite: two processes write one database in WAL mode, with a shared
// writable map and POSIX locks.
func TestSQLite(t *testing.T) { onBoth(t, sQLite) }

func sQLite(t *testing.T, _ *workspace.Workspace, dir string) {
	need(t, "sqlite3")
	const each = 200
	sh(t, dir, fmt.Sprintf(`
		[ "$(sqlite3 db 'PRAGMA journal_mode=WAL; CREATE TABLE t(who, n);')" = wal ]
		w() { for i in $(seq %d); do echo "INSERT INTO t VALUES('$1', $i);"; done | sqlite3 -bail -cmd '.timeout 60000' db; }
		w a & a=$!; w b & b=$!; wait $a; wait $b`, each))
	if out := sh(t, dir, `sqlite3 db 'SELECT count(*), count(DISTINCT who) FROM t; PRAGMA integrity_check'`); out != fmt.Sprintf("%d|2\nok\n", 2*each) {
		t.Errorf("got %q", out)
	}
}

func TestInotify(t *testing.T) { onBoth(t, inotify) }

func inotify(t *testing.T, _ *workspace.Workspace, dir string) {
	need(t, "inotifywait")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "inotifywait", "-m", "-r", "--format", "%e %f", dir)
	out, _ := cmd.StdoutPipe()
	errs, _ := cmd.StderrPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	for lines := bufio.NewScanner(errs); lines.Scan() && !strings.Contains(lines.Text(), "established"); {
	}
	sh(t, dir, "echo x > made; mv made moved; rm moved")
	want := []string{"CREATE made", "CLOSE_WRITE,CLOSE made", "MOVED_FROM made", "MOVED_TO moved", "DELETE moved"}
	lines := bufio.NewScanner(out)
	for len(want) > 0 && lines.Scan() {
		if lines.Text() == want[0] {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		t.Errorf("never seen: %q", want)
	}
}

func TestNpm(t *testing.T) {
	need(t, "npm", "node")
	_, dir := mountedWorkspace(t)
	// Packages come from local directories and tarballs: no registry is used.
	sh(t, dir, `export HOME=$PWD npm_config_offline=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
		mkdir pkgs; for i in $(seq 4); do mkdir -p pkgs/p$i/lib
			echo "{\"name\":\"p$i\",\"version\":\"1.0.$i\",\"main\":\"lib/a.js\",\"bin\":{\"p$i\":\"lib/a.js\"}}" > pkgs/p$i/package.json
			for f in a b c d e f; do printf '#!/usr/bin/env node\nmodule.exports=%d\n' $i > pkgs/p$i/lib/$f.js; done
			(cd pkgs && npm pack --silent ./p$i > /dev/null); done
		mkdir app; cd app; npm init -y > /dev/null
		npm install --silent $(ls ../pkgs/*.tgz)
		[ $(ls node_modules | wc -l) = 4 ]; [ -x node_modules/.bin/p3 ]
		node -e 'let s=0; for (let i=1;i<=4;i++) s+=require("p"+i); if (s!==10) process.exit(1)'
		rm -rf node_modules; npm ci --silent; [ $(ls node_modules | wc -l) = 4 ]`)
}

func TestPostgres(t *testing.T) {
	debian, err := filepath.Glob("/usr/lib/postgresql/*/bin") // not in PATH there
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", strings.Join(append(debian, os.Getenv("PATH")), ":"))
	need(t, "initdb", "pg_ctl", "pgbench", "psql")
	_, dir := mountedWorkspace(t)
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	const uid = 65534 // PostgreSQL refuses root, and users without a name
	data, sock := filepath.Join(dir, "data"), t.TempDir()
	for _, d := range []string{data, sock} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(d, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(sock), 0o755); err != nil {
		t.Fatal(err)
	}
	env := fmt.Sprintf("export PGDATA=%s PGHOST=%s PGUSER=holt LC_ALL=C HOME=%s; ", data, sock, sock)
	as(t, uid, sock, env+"initdb -N -U holt -A trust > initdb.log")
	as(t, uid, sock, env+"pg_ctl start -w -s -l "+sock+"/log -o \"-k $PGHOST -h ''\"")
	stop := func(mode string) { as(t, uid, sock, env+"pg_ctl stop -w -s -m "+mode) }
	as(t, uid, sock, env+"pgbench -i -q -s 1 postgres 2>&1; pgbench -c 4 -t 25 -n postgres 2>&1")
	stop("immediate") // as if killed: it has to recover from its log
	as(t, uid, sock, env+"pg_ctl start -w -s -l "+sock+"/log -o \"-k $PGHOST -h ''\"")
	defer stop("fast")
	if out := as(t, uid, sock, env+`psql -Atc 'SELECT count(*) FROM pgbench_history; SELECT sum(abalance) = (SELECT sum(delta) FROM pgbench_history) FROM pgbench_accounts' postgres`); out != "100\nt\n" {
		t.Errorf("got %q", out)
	}
}

func TestTail(t *testing.T) { onBoth(t, followed) }

func followed(t *testing.T, _ *workspace.Workspace, dir string) {
	log := filepath.Join(dir, "log")
	writeFile(t, log, "first\n")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tail", "-F", "-s", "0.05", "-n", "+1", log)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	lines := bufio.NewScanner(out)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("tail shows %q, want %q", lines.Text(), want)
		}
	}
	next("first")
	sh(t, dir, "echo second >> log")
	next("second")
	sh(t, dir, "mv log old; echo third > log")
	next("third")
}
