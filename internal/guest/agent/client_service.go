package agent

import (
	"context"
	"io"
	"slices"
	"time"

	"holt"
)

// PutService adds a service to the guest. An existing service with the same
// spec is not changed. AlreadyExists: another service or system unit has that
// name; NotFound: there is no such user or directory; Unsupported: the guest
// has no systemd.
func (c *Client) PutService(ctx context.Context, spec holt.ServiceSpec) (holt.Service, error) {
	return c.service(ctx, opSvcPut, serviceArgs{Spec: &spec})
}

// DoService starts, stops, restarts or deletes (verb) a service, and returns it.
func (c *Client) DoService(ctx context.Context, name, verb string) (holt.Service, error) {
	return c.service(ctx, opSvcDo, serviceArgs{Name: name, Verb: verb})
}

func (c *Client) service(ctx context.Context, op string, args serviceArgs) (holt.Service, error) {
	var s holt.Service
	if err := c.call(ctx, op, args, &s); err != nil {
		return holt.Service{}, err
	}
	return vetService(s)
}

// mostServiceBytes limits the encoded size of a list of services.
const mostServiceBytes = 16 << 20

// Services lists the guest's services: added ones, and those of its template.
func (c *Client) Services(ctx context.Context) ([]holt.Service, error) {
	s, err := c.open(ctx, opSvcList, nil, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	list := []holt.Service{}
	err = readList(s, mostServiceBytes, func(one holt.Service) error {
		if len(list) == maxServices {
			return nil
		}
		one, err := vetService(one)
		list = append(list, one)
		return err
	})
	if own, ok := own(err); ok {
		return nil, own
	}
	return list, describe(ctx, opSvcList, err)
}

// ServiceLog writes the last lines of a service's log to w, and with follow
// also new ones until ctx ends.
func (c *Client) ServiceLog(ctx context.Context, name string, q holt.ServiceLogQuery, w io.Writer) error {
	s, err := c.open(ctx, opSvcLog, serviceArgs{Name: name, Lines: q.Lines, Follow: q.Follow}, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	buf := make([]byte, smallChunk)
	for in := (&chunkReader{r: s}); ; {
		n, err := in.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return describe(ctx, opSvcLog, err)
		}
	}
}

// vetService validates a guest's description of a service.
func vetService(s holt.Service) (holt.Service, error) {
	known := []holt.ServiceState{holt.ServiceStarting, holt.ServiceRunning, holt.ServiceRestarting, holt.ServiceStopping, holt.ServiceStopped, holt.ServiceFailed}
	if _, err := holt.ParseName(s.Name); err != nil && !s.Template || !slices.Contains(known, s.State) {
		return holt.Service{}, holt.Errorf(holt.Corrupt, "guest reports an invalid service %q in state %q", clip(s.Name), clip(string(s.State)))
	}
	if s.Signal != "" && !signalRE.MatchString(s.Signal) {
		return holt.Service{}, holt.Errorf(holt.Corrupt, "guest reports an invalid signal for a service: %q", clip(s.Signal))
	}
	s.OutOfMemory = vetMemory(s.OutOfMemory)
	s.Name, s.Reason = plain(s.Name, maxWord), plain(s.Reason, maxWord)
	r := s.Spec.Ready
	s.Spec = holt.ServiceSpec{
		Name: s.Name, User: plain(s.Spec.User, maxWord), Cwd: s.Spec.Cwd[:min(len(s.Spec.Cwd), maxTarget)], Command: s.Spec.Command[:min(len(s.Spec.Command), maxTold)],
		Restart: holt.ServiceRestart(plain(string(s.Spec.Restart), maxWord)),
		Ready:   holt.ServiceReady{Port: min(max(0, r.Port), 1<<16-1), Command: r.Command[:min(len(r.Command), maxTold)], Seconds: max(0, r.Seconds)},
	}
	s.PID, s.Restarts, s.ExitCode = max(0, s.PID), max(0, s.Restarts), min(max(0, s.ExitCode), 255)
	if s.Since != nil && (s.Since.Unix() <= 0 || s.Since.After(time.Now().AddDate(1, 0, 0))) {
		s.Since = nil
	}
	return s, nil
}
