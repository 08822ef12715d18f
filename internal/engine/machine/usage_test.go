package machine

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestUsage: the usage of a program's children counts while they run and after they have ended.
func TestUsage(t *testing.T) {
	cmd := exec.Command("sh", "-c", `sh -c 'n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done'
		sh -c 'n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done; echo; exec sleep 600' & wait`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	own := Usage{}
	own.add(cmd.Process.Pid)
	if u := UsageOf(cmd.Process.Pid); u.CPUMS <= own.CPUMS || own.CPUMS == 0 || u.Resident <= own.Resident || u.Own == 0 || u.Own > u.Resident {
		t.Errorf("a program alone %+v, with its children %+v", own, u)
	}
	if u := UsageOf(cmd.Process.Pid, cmd.Process.Pid); u.CPUMS < 2*own.CPUMS {
		t.Errorf("two of it take %+v, one %+v", u, own)
	}
	if u := UsageOf(1 << 30); u != (Usage{}) {
		t.Errorf("who is not there takes %+v", u)
	}
	if u := UsageOf(os.Getpid()); u.Resident == 0 {
		t.Errorf("this program takes %+v", u)
	}
}
