package history

import (
	"net/http"
	"time"

	configutil "github.com/prometheus/common/config"
)

// A Server says how a server is asked.
type Server struct {
	// URL is that of the server, or of a path of it. It may have a user and a password.
	URL string
	// Headers are those of each request.
	Headers map[string]string
	// HTTP has TLS and credentials.
	HTTP configutil.HTTPClientConfig
}

// Client returns a client whose requests have the headers and credentials, and may take some time; 0 is any time.
func (s Server) Client(timeout time.Duration) (*http.Client, error) {
	transport, err := configutil.NewRoundTripperFromConfig(s.HTTP, "adapter")
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: withHeaders{transport, s.Headers}, Timeout: timeout}, nil
}

// withHeaders adds headers to requests.
type withHeaders struct {
	next    http.RoundTripper
	headers map[string]string
}

// RoundTrip implements http.RoundTripper.
func (h withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h.headers {
		r.Header.Set(name, value)
	}
	return h.next.RoundTrip(r)
}

// CloseIdleConnections lets http.Client close them.
func (h withHeaders) CloseIdleConnections() {
	if c, ok := h.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
