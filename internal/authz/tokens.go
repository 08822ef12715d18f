package authz

import (
	"context"
	"time"

	"holt"
)

// tokens is [httpapi.TokenStore]: nobody makes, sees or revokes a token that may do more than they.
type tokens struct{ w *warden }

// mine says whether a call may have to do with tokens at all, and with what rights.
func (w *warden) mine(ctx context.Context, u use) (holt.Actor, error) {
	a, credential := holt.ActorOf(ctx)
	if credential && a.Token == "" || a.Token != "" && u == change && a.Rights.ReadOnly {
		return a, denied(a)
	}
	return a, nil
}

// within says whether a token may do nothing that a call may not.
func within(a holt.Actor, t holt.Token) bool { return a.Person() || t.Rights.Within(a.Rights) }

// Create takes names in scopes, and gives no token a longer life than its maker's.
func (n tokens) Create(ctx context.Context, spec holt.TokenSpec, key string) (holt.NewToken, error) {
	a, err := n.w.mine(ctx, change)
	if err == nil {
		spec.Scopes, err = n.w.ids(ctx, spec.Scopes)
	}
	if err != nil {
		return holt.NewToken{}, err
	}
	rights, err := holt.ParseScopes(spec.Scopes)
	if err != nil {
		return holt.NewToken{}, err
	}
	if !within(a, holt.Token{Rights: rights}) {
		return holt.NewToken{}, denied(a)
	}
	if !a.Expires.IsZero() {
		left := time.Until(a.Expires).Milliseconds()
		if spec.LifeMS > left {
			return holt.NewToken{}, holt.Errorf(holt.Forbidden, "a token cannot make one that lives longer than itself").
				WithHint("it expires in %s", holt.ShortMS(left))
		}
		if spec.LifeMS == 0 {
			spec.LifeMS = max(1, left)
		}
	}
	return n.w.n.Tokens.Create(ctx, spec, key)
}

// ids puts ids in the place of names, of things that the call covers.
func (w *warden) ids(ctx context.Context, scopes []holt.Scope) ([]holt.Scope, error) {
	out := make([]holt.Scope, 0, len(scopes))
	for _, s := range scopes {
		switch kind, ref, _ := holt.CutScope(s); kind {
		case "computer", "port":
			c, err := w.getComputer(ctx, ref)
			if err != nil {
				return nil, err
			}
			s = s.Named(string(c.ID))
		case "workspace":
			ws, err := workspaces{w}.Get(ctx, ref)
			if err != nil {
				return nil, err
			}
			s = s.Named(string(ws.ID))
		}
		out = append(out, s)
	}
	return out, nil
}

func (n tokens) List(ctx context.Context) ([]holt.Token, error) {
	a, err := n.w.mine(ctx, look)
	if err != nil {
		return nil, err
	}
	all, err := n.w.n.Tokens.List(ctx)
	if err != nil {
		return nil, err
	}
	list := []holt.Token{}
	for _, t := range all {
		if within(a, t) {
			list = append(list, t)
		}
	}
	return list, nil
}

func (n tokens) Get(ctx context.Context, ref string) (holt.Token, error) {
	a, err := n.w.mine(ctx, look)
	if err != nil {
		return holt.Token{}, err
	}
	return n.get(ctx, a, ref)
}

// get finds no token that may do more than the call.
func (n tokens) get(ctx context.Context, a holt.Actor, ref string) (holt.Token, error) {
	t, err := n.w.n.Tokens.Get(ctx, ref)
	if err == nil && !within(a, t) {
		err = noToken(ref)
	}
	if err != nil {
		return holt.Token{}, err
	}
	return t, nil
}

func noToken(ref string) error {
	return holt.Errorf(holt.NotFound, "there is no token %q", holt.Clip(ref, 80)).WithHint("holt token list shows those there are")
}

// Delete revokes also the token that it comes with.
func (n tokens) Delete(ctx context.Context, ref, key string) error {
	a, err := n.w.mine(ctx, change)
	if err != nil {
		return err
	}
	t, err := n.w.n.Tokens.Get(ctx, ref)
	switch {
	case err != nil && holt.CodeOf(err) != holt.NotFound: // which a repeat of this call finds, too
		return err
	case err == nil && !within(a, t):
		return noToken(ref)
	}
	return n.w.n.Tokens.Delete(ctx, ref, key) // by the name that was given, so that a repeat is the same call
}
