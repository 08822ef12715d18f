package computer

import (
	"context"
	"io"
	"regexp"
	"strings"
	"sync"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/idempotency"
	"holt/internal/workspace"
)

// Services is the programs that computers keep running. A service is a systemd unit on the root
// disk, so it survives stops, pauses, forks and restores. The host stores nothing of it.
type Services struct {
	*registry
	waker *waker
}

// Services returns the services of all computers.
func (s *Store) Services() *Services { return s.services }

// Add adds a service to a computer, which is woken, and starts it without waiting until it is
// ready. Adding an identical service changes nothing.
//
// Errors: InvalidArgument; AlreadyExists (another service, or a unit of the system, has the name);
// NotFound (no such user or directory); Unsupported (the computer has no systemd); TooMany.
func (n *Services) Add(ctx context.Context, computer string, spec holt.ServiceSpec, key string) (holt.Service, error) {
	spec, err := spec.Normal()
	if err != nil {
		return holt.Service{}, err
	}
	request := struct {
		Computer string
		Spec     holt.ServiceSpec
	}{computer, spec}
	return n.change(ctx, computer, "service.add", request, key, func(ctx context.Context, c *agent.Client) (holt.Service, error) {
		return c.PutService(ctx, spec)
	})
}

// Do starts, stops, restarts or deletes (verb) a service and returns it. A stopped service stays
// stopped when the computer is started again.
func (n *Services) Do(ctx context.Context, computer, name, verb, key string) (holt.Service, error) {
	return n.change(ctx, computer, "service."+verb, [2]string{computer, name}, key, func(ctx context.Context, c *agent.Client) (holt.Service, error) {
		return c.DoService(ctx, name, verb)
	})
}

// change changes services once for each key. The guest may be asked twice.
func (n *Services) change(ctx context.Context, computer, method string, request any, key string, act func(context.Context, *agent.Client) (holt.Service, error)) (holt.Service, error) {
	return detach(ctx, n.shutdown, func(ctx context.Context) (holt.Service, error) {
		return idempotency.Once(ctx, n.cfg.Keys, idempotency.Call[holt.Service]{
			Key: key, Method: method, Request: request, Removes: method == "service.delete",
			Act: func(ctx context.Context, _ *idempotency.Claim) (out holt.Service, err error) {
				err = n.at(ctx, computer, func(l *live) error {
					return l.do(ctx, l.limits.Answer, true, func(ctx context.Context, c *agent.Client) (err error) {
						out, err = act(ctx, c)
						l.told(out.OutOfMemory)
						return err
					})
				})
				return out, err
			},
		})
	})
}

// at calls act with the machine of a computer, which is woken and in use meanwhile.
func (n *Services) at(ctx context.Context, computer string, act func(*live) error) error {
	_, l, done, err := n.waker.use(ctx, computer, holt.Use{Kind: holt.UseCall, Detail: "services"})
	if err != nil {
		return err
	}
	defer done()
	return act(l)
}

// List returns the services of a computer, which is woken: those that were added and those of its
// template.
func (n *Services) List(ctx context.Context, computer string) (list []holt.Service, err error) {
	err = n.at(ctx, computer, func(l *live) error {
		return l.do(ctx, l.limits.Answer, true, func(ctx context.Context, c *agent.Client) (err error) {
			list, err = c.Services(ctx)
			for _, one := range list {
				l.told(one.OutOfMemory)
			}
			return err
		})
	})
	return list, err
}

// Get returns a service.
func (n *Services) Get(ctx context.Context, computer, name string) (holt.Service, error) {
	list, err := n.List(ctx, computer)
	if err != nil {
		return holt.Service{}, err
	}
	for _, one := range list {
		if one.Name == name {
			return one, nil
		}
	}
	return holt.Service{}, holt.Errorf(holt.NotFound, "there is no service %q in this computer", clip(name)).
		WithHint("list the services with holt service list, add one with holt service add")
}

// Logs writes a service's log to w: the last lines and, with Follow, what is added until ctx ends.
func (n *Services) Logs(ctx context.Context, computer, name string, q holt.ServiceLogQuery, w io.Writer) error {
	return n.at(ctx, computer, func(l *live) error {
		c, err := l.agent(ctx, l.limits.Reconnect)
		if err != nil {
			return err
		}
		return c.ServiceLog(ctx, name, q, w)
	})
}

// mostUnits bounds the units of a machine that are writers of their own, since a guest can invent
// any number.
const mostUnits = 256

var unitRE = regexp.MustCompile(`^[A-Za-z0-9@_.:\\-]{1,90}$`)

type units struct {
	mu   sync.Mutex
	seen map[string]bool
}

// writer returns the writer of a tag that is a systemd unit.
func (u *units) writer(tag string) (workspace.Writer, bool) {
	unit, ok := strings.CutPrefix(tag, "unit/")
	name := strings.TrimSuffix(unit, ".service")
	if !ok || !unitRE.MatchString(name) {
		return workspace.Writer{}, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen == nil {
		u.seen = map[string]bool{}
	}
	if !u.seen[name] && len(u.seen) >= mostUnits {
		return workspace.Writer{}, false
	}
	u.seen[name] = true
	return workspace.Writer{Kind: "service", Name: name}, true
}
