package computer

import (
	"cmp"
	"context"
	"errors"
	"time"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/idempotency"
)

// Terminals is the terminals of computers. A terminal belongs to its computer's agent: it survives
// its clients and the daemon. Its record survives the machine.
type Terminals struct {
	*registry
	rows  terminalTable
	waker *waker
}

// Open returns the running terminal of the spec's name, or starts one; a stopped computer is
// started first.
//
// Errors: InvalidArgument and NotFound (the guest has no such user, directory or program), TooMany,
// Conflict (the computer is being deleted), Unavailable.
func (n *Terminals) Open(ctx context.Context, computer string, spec holt.TerminalSpec, key string) (holt.Terminal, error) {
	var err error
	if spec.Name, err = holt.ParseName(cmp.Or(spec.Name, holt.DefaultTerminal)); err != nil {
		return holt.Terminal{}, err
	}
	if err := checkTerminal(spec); err != nil {
		return holt.Terminal{}, err
	}
	request := struct {
		Computer string
		Spec     holt.TerminalSpec
	}{computer, spec}
	return detach(ctx, n.shutdown, func(ctx context.Context) (holt.Terminal, error) {
		return idempotency.Once(ctx, n.cfg.Keys, idempotency.Call[holt.Terminal]{
			Key: key, Method: "terminal.open", Request: request,
			Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Terminal, error) {
				return n.open(ctx, computer, holt.NewTerminalID(), spec, claim)
			},
			Again: func(ctx context.Context, ref string) (holt.Terminal, error) {
				return n.open(ctx, computer, holt.TerminalID(ref), spec, nil)
			},
		})
	})
}

// checkTerminal is checkRun for terminals, which may have no command.
func checkTerminal(spec holt.TerminalSpec) error {
	if spec.Size.Rows > holt.MostTerminalSize || spec.Size.Cols > holt.MostTerminalSize {
		return holt.Errorf(holt.InvalidArgument, "invalid terminal size: %d rows, %d columns", spec.Size.Rows, spec.Size.Cols).
			WithHint("the maximum is %d", holt.MostTerminalSize)
	}
	run := holt.RunSpec{Command: spec.Command, Argv: spec.Argv, Env: spec.Env, Cwd: spec.Cwd, User: spec.User}
	if spec.Command == "" && len(spec.Argv) == 0 {
		run.Command = "a login shell"
	}
	return checkRun(run)
}

// open makes the guest open a terminal with an id, unless it has one of that name. The record comes
// first.
func (n *Terminals) open(ctx context.Context, computer string, id holt.TerminalID, spec holt.TerminalSpec, claim *idempotency.Claim) (holt.Terminal, error) {
	c, l, done, err := n.waker.use(ctx, computer, terminalUse(id, spec.Name))
	if err != nil {
		return holt.Terminal{}, err
	}
	defer done()
	defer l.terminals.launches.claim(id)()
	mine := holt.Terminal{
		ID: id, ComputerID: c.ID, Name: spec.Name, Spec: spec, State: holt.TerminalRunning, Size: spec.Size, StartedAt: time.Now().UTC(),
	}
	if err := n.rows.insert(ctx, mine, claim); err != nil {
		return holt.Terminal{}, err
	}
	if claim == nil { // it may have been on record
		if err := n.rows.unlose(ctx, c.ID, id); err != nil {
			return holt.Terminal{}, err
		}
	}
	if err := n.cfg.failpoint("terminal/open"); err != nil {
		return holt.Terminal{}, err
	}
	var got holt.Terminal
	err = l.do(ctx, l.limits.Answer, true, func(ctx context.Context, agent *agent.Client) error {
		var err error
		got, err = agent.OpenTerminal(ctx, id, spec)
		switch {
		case err == nil || cut(agent, err):
			return err
		case ctx.Err() != nil:
			agent.Close() // it hangs; the next session reconciles
			return err
		default:
			return errors.Join(err, n.rows.forget(ctx, c.ID, id))
		}
	})
	if err != nil {
		return holt.Terminal{}, err
	}
	if got.ID != id { // it had one of that name
		if err := n.rows.forget(ctx, c.ID, id); err != nil {
			return holt.Terminal{}, err
		}
	}
	return l.terminals.take(ctx, got)
}

// Get returns a terminal by id or name: of several with the name the running one, otherwise the
// newest.
func (n *Terminals) Get(ctx context.Context, computer, ref string) (holt.Terminal, error) {
	all, err := n.List(ctx, computer)
	if err != nil {
		return holt.Terminal{}, err
	}
	return pick(all, ref)
}

// pick chooses from a list, newest first.
func pick(all []holt.Terminal, ref string) (holt.Terminal, error) {
	var found *holt.Terminal
	for i := range all {
		t := &all[i]
		if string(t.ID) == ref {
			return *t, nil
		}
		if t.Name == ref && (found == nil || found.State != holt.TerminalRunning && t.State == holt.TerminalRunning) {
			found = t
		}
	}
	if found == nil {
		return holt.Terminal{}, holt.Errorf(holt.NotFound, "there is no terminal %q in this computer", clip(ref)).
			WithHint("list the terminals with holt terminal list, open one with holt terminal open")
	}
	return *found, nil
}

// List returns the terminals of a computer, newest first, up to date if the guest answers.
func (n *Terminals) List(ctx context.Context, computer string) ([]holt.Terminal, error) {
	c, err := n.table.find(ctx, computer)
	if err != nil {
		return nil, err
	}
	l := n.machines.live(c.ID)
	if l == nil {
		return n.rows.of(ctx, c.ID)
	}
	return l.terminals.list(ctx)
}

// Signal sends a signal, for instance SIGTERM or TERM, to the terminal's foreground process group,
// as its keys do; SIGKILL ends all its processes.
func (n *Terminals) Signal(ctx context.Context, computer, ref, signal, key string) error {
	_, err := idempotency.Once(ctx, n.cfg.Keys, idempotency.Call[struct{}]{
		Key: key, Method: "terminal.signal", Request: [3]string{computer, ref, signal},
		Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) {
			t, l, done, err := n.at(ctx, computer, ref)
			defer done()
			if err == nil && l == nil {
				err = holt.Errorf(holt.Conflict, "the terminal %s has ended", t.Name).WithHint("open another one with holt terminal open")
			}
			if err != nil {
				return struct{}{}, err
			}
			return struct{}{}, l.do(ctx, l.limits.Answer, false, func(ctx context.Context, c *agent.Client) error {
				return c.SignalTerminal(ctx, t.ID, signal)
			})
		},
	})
	return err
}

// Close hangs a terminal up (SIGHUP; processes left after 5 s are killed) and returns it. Its
// record stays. An ended terminal stays as it is.
func (n *Terminals) Close(ctx context.Context, computer, ref, key string) (holt.Terminal, error) {
	return idempotency.Once(ctx, n.cfg.Keys, idempotency.Call[holt.Terminal]{
		Key: key, Method: "terminal.close", Request: [2]string{computer, ref},
		Act: func(ctx context.Context, _ *idempotency.Claim) (holt.Terminal, error) {
			t, l, done, err := n.at(ctx, computer, ref)
			defer done()
			if err != nil || l == nil {
				return t, err
			}
			var end holt.Terminal
			err = l.do(ctx, l.limits.Answer, true, func(ctx context.Context, c *agent.Client) error {
				var err error
				end, err = c.CloseTerminal(ctx, t.ID)
				return err
			})
			if err != nil {
				return holt.Terminal{}, err
			}
			return l.terminals.take(ctx, end)
		},
	})
}

func terminalUse(id holt.TerminalID, name string) holt.Use {
	return holt.Use{Kind: holt.UseTerminal, ID: string(id), Detail: name}
}

// at returns a terminal and its machine, in use until done is called; nil if the terminal has
// ended.
func (n *Terminals) at(ctx context.Context, computer, ref string) (holt.Terminal, *live, func(), error) {
	t, err := n.Get(ctx, computer, ref)
	if err != nil || t.State != holt.TerminalRunning {
		return t, nil, func() {}, err
	}
	_, l, done, err := n.waker.use(ctx, string(t.ComputerID), terminalUse(t.ID, t.Name))
	if err != nil {
		return t, nil, func() {}, err
	}
	return t, l, done, nil
}
