package servertest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"syscall"
	"time"

	"holt"
)

// services are processes of this host that are not started again.
type services struct{ m *Memory }

type service struct {
	computer holt.ComputerID
	spec     holt.ServiceSpec // with its environment
	info     holt.Service
	log      string
	cmd      *exec.Cmd     // of the last start
	gone     chan struct{} // closed when it has ended
}

func (n services) Add(_ context.Context, computer string, spec holt.ServiceSpec, key string) (holt.Service, error) {
	return once(n.m, key, []any{"service", computer, spec}, func() (holt.Service, error) {
		c, err := n.m.computer(computer)
		if err != nil {
			return holt.Service{}, err
		}
		if spec, err = spec.Normal(); err != nil {
			return holt.Service{}, err
		}
		c.State = holt.ComputerRunning // it wakes
		if one, err := n.find(computer, spec.Name); err == nil {
			if !reflect.DeepEqual(one.spec, spec) {
				return holt.Service{}, holt.Errorf(holt.AlreadyExists, "there is a service %s already", spec.Name).WithHint("holt service delete removes it")
			}
			return one.shown(), nil
		}
		one := &service{computer: c.ID, spec: spec, log: filepath.Join(n.m.root(c), "service-"+spec.Name+".log")}
		one.info = holt.Service{Name: spec.Name, Spec: spec, Wanted: true}
		one.info.Spec.Env = nil
		if err := one.start(n.m.home(c)); err != nil {
			return holt.Service{}, err
		}
		n.m.services = append(n.m.services, one)
		return one.shown(), nil
	})
}

// start starts it anew.
func (s *service) start(dir string) error {
	s.kill()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.Command("/bin/sh", "-c", string(s.spec.Command))
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr, s.cmd.Env = dir, log, log, os.Environ()
	for k, v := range s.spec.Env {
		s.cmd.Env = append(s.cmd.Env, string(k+"="+v))
	}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	now, cmd, gone := time.Now().UTC(), s.cmd, make(chan struct{})
	s.info.Since, s.info.PID, s.gone, s.info.Wanted = &now, cmd.Process.Pid, gone, true
	go func() {
		defer close(gone)
		_ = cmd.Wait() // the state says it all
	}()
	return nil
}

// kill ends it, if it runs.
func (s *service) kill() {
	if s.gone != nil {
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.gone
	}
}

// shown is what it is now.
func (s *service) shown() holt.Service {
	info := s.info
	select {
	case <-s.gone:
		info.PID = 0
		info.State, info.ExitCode = holt.ServiceStopped, max(0, s.cmd.ProcessState.ExitCode())
		if info.Wanted && info.ExitCode != 0 {
			info.State, info.Reason = holt.ServiceFailed, "exit-code"
		}
	default:
		info.State = holt.ServiceRunning
		if probe := s.spec.Ready.Command; probe != "" && exec.Command("/bin/sh", "-c", string(probe)).Run() != nil {
			info.State = holt.ServiceStarting
		}
	}
	return info
}

// find finds one; the lock is held.
func (n services) find(computer, name string) (*service, error) {
	c, err := n.m.computer(computer)
	if err != nil {
		return nil, err
	}
	for _, one := range n.m.services {
		if one.computer == c.ID && one.spec.Name == name {
			return one, nil
		}
	}
	return nil, holt.Errorf(holt.NotFound, "there is no service %q in %s", name, computer).WithHint("holt service list shows what there is")
}

func (n services) List(_ context.Context, computer string) ([]holt.Service, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	c, err := n.m.computer(computer)
	if err != nil {
		return nil, err
	}
	list := []holt.Service{}
	for _, one := range n.m.services {
		if one.computer == c.ID {
			list = append(list, one.shown())
		}
	}
	return list, nil
}

func (n services) Get(_ context.Context, computer, name string) (holt.Service, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	one, err := n.find(computer, name)
	if err != nil {
		return holt.Service{}, err
	}
	return one.shown(), nil
}

func (n services) Do(_ context.Context, computer, name, verb, key string) (holt.Service, error) {
	return once(n.m, key, []any{verb, computer, name}, func() (holt.Service, error) {
		one, err := n.find(computer, name)
		if err != nil {
			return holt.Service{}, err
		}
		switch verb {
		case "start", "restart":
			c, _ := n.m.computer(computer)
			if verb == "restart" || one.shown().PID == 0 {
				err = one.start(n.m.home(c))
			}
		case "stop", "delete":
			one.kill()
			one.info.Wanted = false
		}
		for i := range n.m.services {
			if verb == "delete" && n.m.services[i] == one {
				n.m.services = append(n.m.services[:i:i], n.m.services[i+1:]...)
				break
			}
		}
		return one.shown(), err
	})
}

func (n services) Logs(ctx context.Context, computer, name string, q holt.ServiceLogQuery, w io.Writer) error {
	n.m.mu.Lock()
	one, err := n.find(computer, name)
	n.m.mu.Unlock()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(one.log)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil && q.Follow {
		<-ctx.Done()
	}
	return err
}
