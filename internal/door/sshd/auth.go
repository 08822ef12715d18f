package sshd

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"golang.org/x/crypto/ssh"

	"holt"
	"holt/internal/access"
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

// tenant is whose computers its names are of.
func (c *caller) tenant() string {
	if c.actor == nil {
		return holt.DefaultTenant
	}
	return cmp.Or(c.actor.Tenant, holt.DefaultTenant)
}

// person says that it is the one whose daemon it is: at the socket, for whichever tenant, or with a key of theirs.
func (c *caller) person() bool { return c.actor == nil || c.how == "api" && c.actor.Person() }

// shares are those that what a caller has open counts in, where there may be all of it and each of one caller. A tenant
// makes as many tokens and keys as it likes, so it has half at most; and what the person has is not among all, so that
// nobody keeps them out.
func (c *caller) shares(all, each int) []access.Share {
	own := access.Share{Whose: " of one caller (" + c.who + ")", Most: each}
	if c.person() {
		return []access.Share{own, {Whose: " of the person whose daemon it is", Most: all / 2}}
	}
	return []access.Share{own, {Whose: " of the tenant " + c.tenant(), Most: all / 2}, {Most: all}}
}

type (
	callerKey     struct{} // *caller, of a connection
	candidatesKey struct{} // []*caller: who it may be, if they have the key
)

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

// asking is config for who has to show a key or a token, and takes its seat by that.
func (g *Gate) asking(ctx context.Context, in *seat) *ssh.ServerConfig {
	c := g.config()
	c.PreAuthConnCallback = func(pre ssh.ServerPreAuthConn) { in.tell = pre.SendAuthBanner }
	c.PublicKeyCallback = func(m ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		return g.admit(m, func(login) (any, any, error) {
			all, err := g.byKey(ctx, key)
			return candidatesKey{}, all, err
		})
	}
	c.VerifiedPublicKeyCallback = func(m ssh.ConnMetadata, _ ssh.PublicKey, p *ssh.Permissions, _ string) (*ssh.Permissions, error) {
		return g.admit(m, func(at login) (any, any, error) {
			who, err := g.choose(ctx, p.ExtraData[candidatesKey{}].([]*caller), at)
			if err == nil {
				in.take(g, who)
			}
			return callerKey{}, who, err
		})
	}
	c.PasswordCallback = func(m ssh.ConnMetadata, secret []byte) (*ssh.Permissions, error) {
		p, err := g.admit(m, func(at login) (any, any, error) {
			who, err := g.byToken(ctx, secret)
			if err == nil && at.tenant != "" && at.tenant != who.tenant() {
				err = errElsewhere
			}
			if err == nil {
				in.take(g, who)
			}
			return callerKey{}, who, err
		})
		if err != nil {
			g.failures.failed(place(m.RemoteAddr().String()))
		}
		return p, err
	}
	return c
}

// errElsewhere is for a tenant that a credential is not for.
var errElsewhere = holt.Errorf(holt.Unauthenticated, "it is not for this tenant")

// admit turns away who names nothing that can be, and else asks who it is. What find returns is kept with the connection.
func (g *Gate) admit(m ssh.ConnMetadata, find func(login) (key, who any, err error)) (*ssh.Permissions, error) {
	at, err := parseName(m.User())
	if err != nil {
		return nil, errRefused
	}
	key, who, err := find(at)
	var told *ssh.BannerError
	switch {
	case errors.As(err, &told):
		return nil, told
	case err != nil:
		if holt.CodeOf(err) != holt.Unauthenticated {
			g.log.Error("authenticate an SSH client", "from", m.RemoteAddr().String(), "err", err)
		}
		return nil, errRefused
	}
	return &ssh.Permissions{ExtraData: map[any]any{key: who}}, nil
}

// choose says as whom somebody comes in who has proved to have a key: any tenant may have added it. So the computer's
// name is of a tenant only where the key is on record in no other, or the tenant is named: nobody is led into a
// computer of a stranger's that is called as theirs is, or was. The person whose daemon it is is not asked which: their
// names are of the default tenant, and an id names any computer. They have proved to have the key, so they are told.
func (g *Gate) choose(ctx context.Context, all []*caller, at login) (*caller, error) {
	var in []*caller
	var tenants []string
	for _, c := range all {
		if tenants = append(tenants, c.tenant()); at.tenant == "" || at.tenant == c.tenant() {
			in = append(in, c)
		}
	}
	switch {
	case len(in) == 0:
		return nil, &ssh.BannerError{Err: errRefused, Message: "holt: this key is not on record in the tenant " + at.tenant + "\r\n"}
	case len(in) == 1 || in[0].actor == nil:
		return in[0], nil
	}
	if _, err := holt.ParseComputerID(at.computer); err != nil {
		return nil, &ssh.BannerError{Err: errRefused, Message: "holt: this key is on record in several tenants: " + strings.Join(tenants, ", ") +
			"; say which, as " + at.computer + "." + tenants[0] + "@HOST, or give the computer's id for its name\r\n"}
	}
	for _, c := range in {
		if _, err := g.opt.Computers.Get(holt.WithActor(ctx, *c.actor), at.computer); err == nil {
			return c, nil
		}
	}
	return in[0], nil // who will hear that it is not there
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

// byKey finds who may come by a key, at least one. That it has the private half is checked after that, and so is nothing
// that its name says before.
func (g *Gate) byKey(ctx context.Context, key ssh.PublicKey) (all []*caller, err error) {
	records, err := g.keys.find(ctx, key)
	if err != nil {
		return nil, err
	}
	refused := error(holt.Errorf(holt.Unauthenticated, "the key is not on record"))
	for _, one := range records {
		c, err := g.ofKey(ctx, one)
		switch {
		case err == nil:
			all = append(all, c)
		case holt.CodeOf(err) != holt.Unauthenticated:
			return nil, err
		default:
			refused = err
		}
	}
	if len(all) == 0 {
		return nil, refused
	}
	return all, nil
}

// ofKey is the caller that comes by a key on record.
func (g *Gate) ofKey(ctx context.Context, one holt.SSHKey) (*caller, error) {
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
