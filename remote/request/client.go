package request

import (
	"context"
	"net/http"
)

// A Client is what a request says of the one who sent it.
type Client struct {
	// Address is that of the connection: of a proxy, if there is one.
	Address string
	// User is that of basic auth, and Certificate the subject of the client's certificate. Each may be empty.
	User, Certificate string
	// ForwardedFor and UserAgent are headers. A client can write there what it likes.
	ForwardedFor, UserAgent string
}

// ClientOf returns the client of a request.
func ClientOf(r *http.Request) Client {
	c := Client{Address: r.RemoteAddr, ForwardedFor: r.Header.Get("X-Forwarded-For"), UserAgent: r.UserAgent()}
	c.User, _, _ = r.BasicAuth()
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

// clientKey is the key of a *http.Request in a context.
type clientKey struct{}

// WithClient returns a context that knows the client of a request.
func WithClient(ctx context.Context, r *http.Request) context.Context {
	return context.WithValue(ctx, clientKey{}, r)
}

// ClientFrom returns the client that a context knows, or none.
func ClientFrom(ctx context.Context) Client {
	if r, ok := ctx.Value(clientKey{}).(*http.Request); ok {
		return ClientOf(r)
	}
	return Client{}
}
