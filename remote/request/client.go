package request

import (
	"context"
	"net/http"
)

// A Client is what a request says of the one who sent it.
type Client struct {
	// Address is that of the connection: of a proxy, if there is one.
	Address string
	// User is that of WithUser, else of basic auth, and Certificate the subject of the client's certificate. Each may be empty.
	User, Certificate string
	// ForwardedFor and UserAgent are headers. A client can write there what it likes.
	ForwardedFor, UserAgent string
}

// ClientOf returns the client of a request.
func ClientOf(r *http.Request) Client {
	c := Client{Address: r.RemoteAddr, ForwardedFor: r.Header.Get("X-Forwarded-For"), UserAgent: r.UserAgent()}
	if name, ok := r.Context().Value(userKey{}).(string); ok {
		c.User = name
	} else {
		c.User, _, _ = r.BasicAuth()
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		c.Certificate = r.TLS.PeerCertificates[0].Subject.String()
	}
	return c
}

// LogPairs returns who the client is, as pairs of a log line.
func (c Client) LogPairs() (pairs []any) {
	pairs = []any{"client", c.Address}
	for _, pair := range [][2]string{{"user", c.User}, {"certificate", c.Certificate}, {"forwarded_for", c.ForwardedFor}} {
		if pair[1] != "" {
			pairs = append(pairs, pair[0], pair[1])
		}
	}
	return pairs
}

// userKey is the key of the name of a user in a context.
type userKey struct{}

// WithUser returns a context of a request of the user of this name, who has proven it.
func WithUser(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, userKey{}, name)
}

// HasUser says whether WithUser was called for the request of a context.
func HasUser(ctx context.Context) bool { return ctx.Value(userKey{}) != nil }
