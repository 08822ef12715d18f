package nouns

import (
	"context"
	"io"

	"holt"
)

// Audit is the log of what was done through the doors.
type Audit interface {
	// List returns entries, the newest first, those of spec.Tenant, or of all with "".
	List(ctx context.Context, spec holt.AuditSpec) ([]holt.AuditEntry, error)
	// Query answers a question in SQL about a tenant's entries, or about all with "". InvalidArgument; Timeout.
	Query(ctx context.Context, tenant string, q holt.TableQuery) (holt.QueryResult, error)
}

// Events are what happens to nouns.
type Events interface {
	// Follow calls emit with a ready or a reset event and then, in order, with those that q asks for and the
	// caller may see, until emit fails (its error), ctx ends or, unless q.Follow, with nil at the end of
	// what is over. InvalidArgument: an unknown kind, or an id that is none.
	Follow(ctx context.Context, q holt.EventQuery, emit func(holt.Event) error) error
}

// Previews are ports of computers that others reach by host name, and the names of one's own that they have besides.
type Previews interface {
	// List returns those of a computer, by port.
	List(ctx context.Context, computer string) ([]holt.Preview, error)
	// Set makes or changes one. What strangers have open ends when it is made private. TooMany.
	Set(ctx context.Context, computer string, port int, spec holt.PreviewSpec) (holt.Preview, error)
	// Delete removes one: what is open through it ends, and its links are no longer valid.
	Delete(ctx context.Context, computer string, port int, key string) error
	// Link makes a link to one, which is made if there is none; each call makes another. Unavailable: nothing
	// listens for previews.
	Link(ctx context.Context, computer string, port int, spec holt.PreviewLinkSpec) (holt.PreviewLink, error)
	// Domains returns those of a computer, by name.
	Domains(ctx context.Context, computer string) ([]holt.PreviewDomain, error)
	// SetDomain has a name show a port. AlreadyExists: it shows another computer's.
	SetDomain(ctx context.Context, computer, domain string, spec holt.PreviewDomainSpec) (holt.PreviewDomain, error)
	DeleteDomain(ctx context.Context, computer, domain, key string) error
}

// SSH is the door of SSH clients.
type SSH interface {
	// Host is what they need to know of it.
	Host() holt.SSHHost
	// Connect returns a connection at whose other end is an SSH server for a computer and the actor of ctx: it asks for no key.
	// It outlives ctx. NotFound.
	Connect(ctx context.Context, computer string) (holt.PortConn, error)
}

// SSHKeys are the keys by which SSH clients come in: of an actor those of its tenant, else all.
type SSHKeys interface {
	List(ctx context.Context) ([]holt.SSHKey, error)
	// Add puts one on record, with the rights of who calls. InvalidArgument, AlreadyExists, TooMany.
	Add(ctx context.Context, spec holt.SSHKeySpec, key string) (holt.SSHKey, error)
	// Delete removes one by its id, fingerprint or name, and ends what came by it. NotFound, Conflict: several have the name.
	Delete(ctx context.Context, ref, key string) (holt.SSHKey, error)
}

// S3Keys are the keys with which clients of S3 sign requests.
type S3Keys interface {
	// Create makes one of a token. A repeated call gets the same. NotFound, TooMany.
	Create(ctx context.Context, token, key string) (holt.NewS3Key, error)
	Get(ctx context.Context, id string) (holt.S3Key, error)
	// List returns those of the caller's tenant, in any order.
	List(ctx context.Context) ([]holt.S3Key, error)
	Delete(ctx context.Context, id, key string) error
}

// Uploads are files that come in pieces, over any number of connections.
type Uploads interface {
	// Create begins one. NotFound: the computer or workspace; OutOfSpace; TooMany.
	Create(ctx context.Context, spec holt.UploadSpec, key string) (holt.Upload, error)
	// Get returns one as it is now, and disturbs no writer.
	Get(ctx context.Context, id holt.UploadID) (holt.Upload, error)
	// List returns those of the caller's tenant, in any order.
	List(ctx context.Context) ([]holt.Upload, error)
	// Halt has whoever adds to one stop, and returns it.
	Halt(ctx context.Context, id holt.UploadID) (holt.Upload, error)
	// Append adds what r holds to one that has exactly offset bytes. What came before r fails stays, unless
	// sum is given: the SHA-256 of all of r. Who added before is stopped. Conflict: it has another number of bytes.
	Append(ctx context.Context, id holt.UploadID, offset int64, sum string, r io.Reader) (holt.Upload, error)
	// Commit gives the file the content that was sent. Conflict: it is not all there, or has another SHA-256; nothing is lost then.
	Commit(ctx context.Context, id holt.UploadID, spec holt.UploadCommit) (holt.Upload, error)
	// Delete gives one up.
	Delete(ctx context.Context, id holt.UploadID, key string) error
}
