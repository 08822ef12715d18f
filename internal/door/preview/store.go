package preview

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"holt"
	"holt/internal/access"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// Computers returns and wakes computers. Both calls check the actor of ctx.
type Computers interface {
	Get(ctx context.Context, ref string) (holt.Computer, error)
	// Wake wakes a computer and marks a use of it until done is called.
	Wake(ctx context.Context, ref string, kind holt.UseKind, detail string) (c holt.Computer, done func(), err error)
}

// Ports lists the ports of computers and connects to them.
type Ports interface {
	List(ctx context.Context, computer string) ([]holt.Listener, error)
	// Reach connects to a port of a running computer. The connection does not count as a use.
	Reach(ctx context.Context, computer string, to holt.PortAddress) (holt.PortConn, error)
}

// Tokens checks API tokens.
type Tokens interface {
	Check(ctx context.Context, secret string) (access.Token, error)
	Hold(ctx context.Context, token access.Token) (context.Context, context.CancelFunc)
}

// Config is the configuration of a [Store].
type Config struct {
	DB        *db.DB // with [Schema]
	Keys      *idempotency.Keys
	KeyFile   string   // key of the links; made if it does not exist
	Place     Place    // Domain "": localhost
	Hosts     []string // names of the API, besides IP addresses and localhost; they never show a computer
	Computers Computers
	Ports     Ports
	Tokens    Tokens
	Links     Links        // to artifacts; nil: none
	Log       *slog.Logger // nil: slog.Default()
	// May checks whether the actor of ctx may connect to a port of a computer; nil: every actor that Get permits.
	May func(ctx context.Context, computer holt.ComputerID, port int) error
	// TXT looks up the TXT records of a name; nil: by the host's resolver.
	TXT func(ctx context.Context, name string) ([]string, error)
	// Record gets an entry for each new visitor, each ended connection, and each refused visitor; nil: none.
	Record func(ctx context.Context, e holt.AuditEntry)
}

// Store is the set of previews and domains of all computers.
type Store struct {
	cfg     Config
	table   table
	signer  signer
	streams streams
	now     func() time.Time

	mu       sync.Mutex
	place    Place
	loopback string // port of the listener at all loopback addresses; "": none
}

// Open opens the previews of a control database.
func Open(cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Place.Domain == "" {
		cfg.Place.Domain = "localhost"
	}
	if cfg.TXT == nil {
		cfg.TXT = func(ctx context.Context, name string) ([]string, error) {
			return net.DefaultResolver.LookupTXT(ctx, name+".") // absolute, without the host's search domains
		}
	}
	cfg.Hosts = plainHosts(cfg.Hosts)
	if name := linksLabel + "." + cfg.Place.Domain; slices.Contains(cfg.Hosts, name) {
		return nil, holt.Errorf(holt.InvalidArgument, "the API has the name %s, which is that of links to artifacts", name).WithHint("choose another --host or --preview-domain")
	}
	s := &Store{cfg: cfg, table: table{cfg.DB}, place: cfg.Place, now: time.Now}
	var err error
	s.signer, err = openKey(cfg.KeyFile)
	return s, err
}

// listensAt completes the place of previews by that of a listener.
func (s *Store) listensAt(scheme, port string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place.Scheme == "" {
		s.place.Scheme = scheme
		if s.place.Port == "" {
			s.place.Port = port
		}
	}
}

// where returns the place of previews, or Unavailable if no listener serves them.
func (s *Store) where() (Place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place.Scheme == "" || s.place.Off {
		return s.place, holt.Errorf(holt.Unavailable, "this daemon does not serve previews").WithHint("start it with holt serve --preview-listen ADDRESS or --listen ADDRESS")
	}
	return s.place, nil
}

// urlOf returns the URL of a port's preview, or "".
func (s *Store) urlOf(c holt.Computer, port int) string {
	p, err := s.where()
	if err != nil {
		return ""
	}
	return p.url(Label(c, port) + "." + p.Domain)
}

func (s *Store) urlOfDomain(name string) string {
	p, err := s.where()
	if err != nil {
		return ""
	}
	return p.url(name)
}

// List returns the previews of a computer, by port.
func (s *Store) List(ctx context.Context, ref string) ([]holt.Preview, error) {
	c, err := s.cfg.Computers.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	rows, domains, err := s.table.list(ctx, c.ID)
	list := []holt.Preview{}
	for _, r := range rows {
		list = append(list, s.shown(c, r, domains))
	}
	return list, err
}

func (s *Store) shown(c holt.Computer, r row, domains []domain) holt.Preview {
	p := holt.Preview{ComputerID: c.ID, Computer: c.Name, Port: r.port, Public: r.public, URL: s.urlOf(c, r.port), ProgramURL: s.programURL(c, r), CreatedAt: r.created}
	for _, d := range domains {
		if d.port == r.port {
			p.Domains = append(p.Domains, d.name)
		}
	}
	return p
}

// Set makes or changes the preview of a port. If it becomes private, requests and connections of the public end.
func (s *Store) Set(ctx context.Context, ref string, port int, spec holt.PreviewSpec) (holt.Preview, error) {
	c, r, err := s.set(ctx, ref, port, spec.Public)
	if err != nil {
		return holt.Preview{}, err
	}
	if !r.public {
		s.streams.end(c.ID, port, ended("is private now"), func(how admission) bool { return how == byNobody || how == byPublic })
	}
	_, domains, err := s.table.list(ctx, c.ID)
	return s.shown(c, r, domains), err
}

func (s *Store) set(ctx context.Context, ref string, port int, public *bool) (holt.Computer, row, error) {
	if _, err := holt.ParsePort(strconv.Itoa(port)); err != nil {
		return holt.Computer{}, row{}, err
	}
	if s.cfg.Place.Off {
		_, err := s.where()
		return holt.Computer{}, row{}, err
	}
	c, err := s.cfg.Computers.Get(ctx, ref)
	if err != nil {
		return c, row{}, err
	}
	r, err := s.table.put(ctx, c.ID, port, public, s.now())
	return c, r, err
}

// Delete removes the preview of a port. Its links become invalid, and its open requests and connections end.
func (s *Store) Delete(ctx context.Context, ref string, port int, key string) error {
	return s.remove(ctx, key, "preview.delete", []any{ref, port}, func(ctx context.Context) error {
		c, err := s.cfg.Computers.Get(ctx, ref)
		if err != nil {
			return err
		}
		found, err := s.table.drop(ctx, c.ID, port)
		if err == nil && !found {
			err = holt.Errorf(holt.NotFound, "port %d of %s has no preview", port, c.Name).WithHint("holt computer previews %s lists its previews", c.Name)
		}
		if err == nil {
			s.streams.end(c.ID, port, ended("was deleted"), func(admission) bool { return true })
		}
		return err
	})
}

// Link makes a link to a preview. It makes the preview if there is none. Links are not stored.
func (s *Store) Link(ctx context.Context, ref string, port int, spec holt.PreviewLinkSpec) (holt.PreviewLink, error) {
	life := time.Duration(spec.ExpiresInMS) * time.Millisecond
	if spec.ExpiresInMS == 0 {
		life = defaultLife
	}
	if spec.ExpiresInMS < 0 || spec.ExpiresInMS > mostLife.Milliseconds() || life < time.Second {
		return holt.PreviewLink{}, holt.Errorf(holt.InvalidArgument, "invalid lifetime %s of a link", holt.ShortMS(spec.ExpiresInMS)).
			WithHint("give one second to 90 days; a public preview needs no link")
	}
	if _, err := s.where(); err != nil {
		return holt.PreviewLink{}, err
	}
	c, r, err := s.set(ctx, ref, port, nil)
	if err != nil {
		return holt.PreviewLink{}, err
	}
	by, _ := holt.ActorOf(ctx)
	end := s.now().Add(life).UTC().Truncate(time.Second)
	if !by.Expires.IsZero() && end.After(by.Expires) { // a link expires no later than its maker
		end = by.Expires.UTC().Truncate(time.Second)
	}
	token := s.signer.sign(c.ID, port, r.serial, end, by.Token)
	query := "?" + linkParameter + "=" + token
	link := holt.PreviewLink{URL: s.urlOf(c, port) + query, Token: token, ExpiresAt: end}
	if at := s.programURL(c, r); at != "" {
		link.ProgramURL = at + query
	}
	return link, nil
}

// Domains returns the domains of a computer, sorted by name.
func (s *Store) Domains(ctx context.Context, ref string) ([]holt.PreviewDomain, error) {
	c, err := s.cfg.Computers.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	_, domains, err := s.table.list(ctx, c.ID)
	list := []holt.PreviewDomain{}
	for _, d := range domains {
		list = append(list, s.shownDomain(c, d))
	}
	return list, err
}

func (s *Store) shownDomain(c holt.Computer, d domain) holt.PreviewDomain {
	return holt.PreviewDomain{Domain: d.name, ComputerID: c.ID, Computer: c.Name, Port: d.port, URL: s.urlOfDomain(d.name), CreatedAt: d.created}
}

// SetDomain makes a domain show a port of a computer. Access is that of the port's preview.
//
// Errors: InvalidArgument (a name of the API, or below the domain of previews), Forbidden (the domain is not proved to
// be the tenant's), AlreadyExists (the domain of another computer).
func (s *Store) SetDomain(ctx context.Context, ref, name string, spec holt.PreviewDomainSpec) (holt.PreviewDomain, error) {
	name, err := holt.ParseDomain(name)
	if err == nil {
		_, err = holt.ParsePort(strconv.Itoa(spec.Port))
	}
	if err == nil {
		err = s.free(name)
	}
	if err != nil {
		return holt.PreviewDomain{}, err
	}
	c, err := s.cfg.Computers.Get(ctx, ref)
	if err == nil {
		err = s.owned(ctx, c, name)
	}
	if err == nil {
		c, _, err = s.set(ctx, ref, spec.Port, nil)
	}
	if err != nil {
		return holt.PreviewDomain{}, err
	}
	d := domain{name, c.ID, spec.Port, s.now().UTC()}
	return s.shownDomain(c, d), s.table.putDomain(ctx, d)
}

// DeleteDomain removes a domain of a computer. Open requests and connections by it end.
func (s *Store) DeleteDomain(ctx context.Context, ref, name, key string) error {
	return s.remove(ctx, key, "preview.domain.delete", []any{ref, name}, func(ctx context.Context) error {
		c, err := s.cfg.Computers.Get(ctx, ref)
		if err != nil {
			return err
		}
		if name, err = holt.ParseDomain(name); err != nil {
			return err
		}
		found, err := s.table.dropDomain(ctx, c.ID, name)
		if err == nil && !found {
			err = holt.Errorf(holt.NotFound, "%s has no domain %s", c.Name, name).WithHint("holt computer domain list %s lists its domains", c.Name)
		}
		if err == nil {
			s.streams.endHost(c.ID, name, ended("no longer has this domain"))
		}
		return err
	})
}

func (s *Store) remove(ctx context.Context, key, method string, request any, act func(context.Context) error) error {
	_, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[struct{}]{Key: key, Method: method, Request: request, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) { return struct{}{}, act(ctx) }})
	return err
}

func ended(how string) error {
	return holt.Errorf(holt.Unauthenticated, "the preview %s", how)
}
