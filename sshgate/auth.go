package sshgate

import (
	"context"
	"errors"

	"golang.org/x/crypto/ssh"

	"holt"
	"holt/access"
)

// caller is who has come in.
type caller struct {
	who   string // for counts and the log: a token, a key, the person
	how   string // key, token or api
	actor *holt.Actor
	agent bool                                                        // it may forward an agent
	hold  func(context.Context) (context.Context, context.CancelFunc) // its rights may end
	key   *holt.SSHKey
}

type callerKey struct{}

// context returns the context of what the caller does, which ends with its rights.
func (c *caller) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.actor != nil {
		ctx = holt.WithActor(ctx, *c.actor)
	}
	if c.hold == nil {
		return context.WithCancel(ctx)
	}
	return c.hold(ctx)
}

// errRefused is all that a client hears.
var errRefused = errors.New("refused")

// mostSecret bounds a password; tokens are shorter.
const mostSecret = 256

// config is what the handshake of a connection goes by.
func (g *Gate) config() *ssh.ServerConfig {
	c := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-holt", MaxAuthTries: authTries,
		PublicKeyAuthAlgorithms: []string{
			ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
			ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512,
		},
	}
	c.KeyExchanges = []string{
		ssh.KeyExchangeMLKEM768X25519, ssh.KeyExchangeCurve25519, ssh.KeyExchangeECDHP256, ssh.KeyExchangeECDHP384, ssh.KeyExchangeECDHP521,
	}
	// With the processor's own instructions AES-GCM is several times as fast.
	c.Ciphers = []string{ssh.CipherAES128GCM, ssh.CipherAES256GCM, ssh.CipherChaCha20Poly1305, ssh.CipherAES128CTR, ssh.CipherAES256CTR}
	c.MACs = []string{ssh.HMACSHA256ETM, ssh.HMACSHA512ETM}
	c.AddHostKey(g.hostKey)
	return c
}

// asking is config for who has to show a key or a token.
func (g *Gate) asking(ctx context.Context) *ssh.ServerConfig {
	c := g.config()
	c.PublicKeyCallback = func(m ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		return g.admit(m, func() (*caller, error) { return g.byKey(ctx, key) })
	}
	c.PasswordCallback = func(m ssh.ConnMetadata, secret []byte) (*ssh.Permissions, error) {
		p, err := g.admit(m, func() (*caller, error) { return g.byToken(ctx, secret) })
		if err != nil {
			g.failures.failed(place(m.RemoteAddr().String()))
		}
		return p, err
	}
	return c
}

// admit turns away who names nothing that can be, and else asks who it is.
func (g *Gate) admit(m ssh.ConnMetadata, find func() (*caller, error)) (*ssh.Permissions, error) {
	if _, _, err := parseName(m.User()); err != nil {
		return nil, errRefused
	}
	who, err := find()
	if err != nil {
		if holt.CodeOf(err) != holt.Unauthenticated {
			g.log.Error("authenticate an SSH client", "from", m.RemoteAddr().String(), "err", err)
		}
		return nil, errRefused
	}
	return &ssh.Permissions{ExtraData: map[any]any{callerKey{}: who}}, nil
}

func (g *Gate) byToken(ctx context.Context, secret []byte) (*caller, error) {
	if len(secret) > mostSecret {
		return nil, holt.Errorf(holt.Unauthenticated, "the token is not valid")
	}
	token, err := g.opt.Tokens.Check(ctx, string(secret))
	if err != nil {
		return nil, err
	}
	return g.ofToken(token, "token"), nil
}

// ofToken is the caller that has a token.
func (g *Gate) ofToken(token access.Token, how string) *caller {
	actor := token.Actor()
	return &caller{who: string(token.ID), how: how, actor: &actor, hold: func(ctx context.Context) (context.Context, context.CancelFunc) {
		return g.opt.Tokens.Hold(ctx, token)
	}}
}

// byKey finds who comes by a key. That it has the private half is checked after that.
func (g *Gate) byKey(ctx context.Context, key ssh.PublicKey) (*caller, error) {
	one, ok, err := g.keys.find(ctx, key)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, holt.Errorf(holt.Unauthenticated, "the key is not on record")
	}
	c := &caller{}
	switch {
	case one.Token != "":
		token, err := g.token(ctx, one.Token)
		if err != nil {
			return nil, err
		}
		c = g.ofToken(token, "key")
		c.actor.Tenant = one.Tenant // an admin may have added it for another than its own
	case one.Tenant != "":
		c.actor = &holt.Actor{Name: one.Name, Tenant: one.Tenant}
	}
	inner := c.hold
	c.who, c.how, c.agent, c.key = string(one.ID), "key", one.AllowAgentForwarding, &one
	c.hold = func(ctx context.Context) (context.Context, context.CancelFunc) {
		release := func() {}
		if inner != nil {
			ctx, release = inner(ctx)
		}
		ctx, let := g.keys.hold(ctx, one.ID)
		return ctx, func() { let(); release() }
	}
	return c, nil
}

// token returns a token that is valid now.
func (g *Gate) token(ctx context.Context, id holt.TokenID) (access.Token, error) {
	all, err := g.opt.Tokens.List(holt.WithActor(ctx, holt.Actor{})) // whosever it is
	if err != nil {
		return access.Token{}, err
	}
	for _, t := range all {
		if t.ID == id && (t.ExpiresAt == nil || g.now().Before(*t.ExpiresAt)) {
			return t, nil
		}
	}
	return access.Token{}, holt.Errorf(holt.Unauthenticated, "the token that the key was added with is not valid any more")
}
