package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"holt"
)

// maxKey bounds an idempotency key, bytes.
const maxKey = 255

// Call is a call that changes something.
type Call[T any] struct {
	Key     string // "": no key, Act is simply called
	Method  string // the kind of call, as "computer.create"
	Request any    // two calls with equal requests are the same call; marshalled to JSON
	// Act does the call. An error means that nothing was changed.
	Act func(ctx context.Context, claim *Claim) (T, error)
	// Again answers a repeat if the daemon ended during the first call, after that had bound its
	// key to ref. Nil: Act is called.
	Again func(ctx context.Context, ref string) (T, error)
	// Removes says that the call removes something. If the daemon ended during the first call, a
	// repeat that gets NotFound has succeeded: its answer is the zero value.
	Removes bool
}

// Once does a call, or returns the recorded answer if the same call was done before.
//
// Errors: Conflict when the key was used for another call; those of [holt.Before], and of Act.
func Once[T any](ctx context.Context, k *Keys, c Call[T]) (T, error) {
	var zero T
	ctx = WithMethod(ctx, c.Method)
	if c.Key == "" {
		ctx, err := holt.AskBefore(ctx)
		if err != nil {
			return zero, err
		}
		return c.Act(ctx, nil)
	}
	if len(c.Key) > maxKey {
		return zero, holt.Errorf(holt.InvalidArgument, "the idempotency key has %d bytes", len(c.Key)).
			WithHint("use at most %d bytes, such as a random identifier", maxKey)
	}
	c.Key = StoredKey(ctx, c.Key)
	hash, err := requestHash(c.Request)
	if err != nil {
		return zero, err
	}
	mine := &call{method: c.Method, hash: hash, done: make(chan struct{})}
	if err := k.enter(ctx, c.Key, mine); err != nil {
		return zero, err
	}
	defer k.leave(c.Key, mine)
	return execute(ctx, k, c, mine)
}

func execute[T any](ctx context.Context, k *Keys, c Call[T], mine *call) (T, error) {
	var zero T
	first, err := k.claim(ctx, c.Key, mine)
	if err != nil {
		return zero, err
	}
	if first.answered {
		var answer T
		if err := json.Unmarshal(first.answer, &answer); err != nil {
			return zero, fmt.Errorf("decode recorded answer: %w", err)
		}
		return answer, nil
	}
	var answer T
	if first.cutOff {
		ctx = holt.Before(ctx, nil) // the first call has passed it
	} else {
		ctx, err = holt.AskBefore(ctx)
	}
	switch {
	case err != nil:
	case first.ref != "" && c.Again != nil:
		answer, err = c.Again(ctx, first.ref)
	default:
		answer, err = c.Act(ctx, ClaimOf(c.Key))
		if c.Removes && first.cutOff && holt.CodeOf(err) == holt.NotFound {
			answer, err = zero, nil
		}
	}
	late := context.WithoutCancel(ctx) // the outcome is recorded even if the caller has gone
	if err != nil {
		if c.Removes && first.cutOff { // keep the key: the next try may get NotFound
			return zero, err
		}
		if lost := k.forget(late, c.Key); lost != nil {
			return zero, errors.Join(err, lost)
		}
		return zero, err
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return zero, fmt.Errorf("encode answer: %w", err)
	}
	// The call has succeeded, so an error here is not reported. A repeat finds what the key was bound to.
	_ = k.record(late, c.Key, b)
	return answer, nil
}

func requestHash(request any) ([sha256.Size]byte, error) {
	b, err := json.Marshal(request) // map keys come out sorted
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encode request: %w", err)
	}
	return sha256.Sum256(b), nil
}

// tenantMark is between a tenant and its key.
const tenantMark = "\x1f"

// StoredKey returns the key that the table has: each tenant has its own keys.
func StoredKey(ctx context.Context, key string) string {
	tenant := holt.TenantOf(ctx)
	if key == "" || tenant == holt.DefaultTenant && !strings.Contains(key, tenantMark) {
		return key
	}
	return tenant + tenantMark + key
}

func keyConflict(key string) error {
	if _, given, of := strings.Cut(key, tenantMark); of {
		key = given
	}
	return holt.Errorf(holt.Conflict, "the idempotency key %q was used for another request", holt.Clip(key, 80)).
		WithHint("use a new key for a new request")
}

// timeout is the error for a caller whose context has ended.
func timeout(ctx context.Context) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return holt.Errorf(holt.Timeout, "the call timed out: %w", err)
	}
	return err
}

type methodKey struct{}

// WithMethod says which kind of call a context belongs to.
func WithMethod(ctx context.Context, method string) context.Context {
	return context.WithValue(ctx, methodKey{}, method)
}

// Method returns the kind of call that a context belongs to; "" if it is not known.
func Method(ctx context.Context) string {
	method, _ := ctx.Value(methodKey{}).(string)
	return method
}
