package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/promtable/promtable/e2e/harness"
)

// TestWebConfig turns on TLS and basic auth: each must be asked for.
func TestWebConfig(t *testing.T) {
	dir := t.TempDir()
	roots := writeCertificate(t, dir)
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\nbasic_auth_users: {alice: %q}\n", hash)
	path := filepath.Join(dir, "web.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a := harness.StartAdapter(t, harness.Embedded(t), "--web.config.file="+path)
	a.WaitLine(t, "ready to serve", "remote_write=https://"+a.Addr)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(client.CloseIdleConnections)
	for _, tt := range []struct {
		name, scheme, user, password string
		want                         int
	}{
		{"both", "https", "alice", "secret", http.StatusOK},
		{"wrong password", "https", "alice", "Secret", http.StatusUnauthorized},
		{"unknown user", "https", "bob", "secret", http.StatusUnauthorized},
		{"plain", "http", "alice", "secret", http.StatusBadRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, path := range []string{"/metrics", "/federate?match[]=x", "/api/v1/explain?match[]=x", "/debug/pprof/"} {
				req, err := http.NewRequest(http.MethodGet, tt.scheme+"://"+a.Addr+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.SetBasicAuth(tt.user, tt.password)
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != tt.want {
					t.Errorf("%s: %s, want %d", path, resp.Status, tt.want)
				}
			}
		})
	}
}

// TestClientCertificate: a client with a certificate that the server verifies has the rights of the user whose name is its common name. Another
// client has none.
func TestClientCertificate(t *testing.T) {
	dir := t.TempDir()
	roots := writeCertificate(t, dir) // of the server, and of the client
	for name, text := range map[string]string{
		"web.yml":   "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: cert.pem, client_auth_type: VerifyClientCertIfGiven}\n",
		"users.yml": "users: {e2e: {roles: [read]}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := harness.StartAdapter(t, harness.Embedded(t), "--web.config.file="+filepath.Join(dir, "web.yml"), "--web.users-file="+filepath.Join(dir, "users.yml"), "--web.health-without-credentials")
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		certs []tls.Certificate
		want  map[string]int
	}{
		{"with", []tls.Certificate{own}, map[string]int{"GET /api/v1/labels": 200, "POST /api/v1/write": 403, "GET /debug/pprof/cmdline": 403, "GET /-/ready": 200}},
		{"without", nil, map[string]int{"GET /api/v1/labels": 401, "POST /api/v1/write": 401, "GET /debug/pprof/cmdline": 401, "GET /-/ready": 200}},
	} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: tt.certs}}}
		t.Cleanup(client.CloseIdleConnections)
		for request, want := range tt.want {
			method, path, _ := strings.Cut(request, " ")
			req, err := http.NewRequest(method, "https://"+a.Addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s a certificate, %s: %s, want %d", tt.name, request, resp.Status, want)
			}
		}
	}
}

// TestCertificateEnd: the metric says when the certificate ends that the server shows, and follows the file.
func TestCertificateEnd(t *testing.T) {
	dir := t.TempDir()
	roots := writeCertificate(t, dir)
	path := filepath.Join(dir, "web.yml")
	if err := os.WriteFile(path, []byte("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := harness.StartAdapter(t, harness.Embedded(t), "--web.config.file="+path)
	check := func(roots *x509.CertPool) (end int64) {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
		t.Cleanup(client.CloseIdleConnections)
		resp, err := client.Get("https://" + a.Addr + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		end = resp.TLS.PeerCertificates[0].NotAfter.Unix()
		line := regexp.MustCompile(`(?m)^adapter_web_certificate_expiry_timestamp_seconds (\S+)$`).FindSubmatch(body)
		if line == nil {
			t.Fatal("no metric")
		}
		if got, err := strconv.ParseFloat(string(line[1]), 64); err != nil || int64(got) != end {
			t.Errorf("the metric is %s, the certificate ends at %d (%v)", line[1], end, err)
		}
		return end
	}
	first := check(roots)
	roots = writeCertificateUntil(t, dir, time.Now().Add(2*time.Hour))
	if second := check(roots); second == first {
		t.Errorf("the server still shows the certificate until %d", first)
	}
}

// writeCertificate writes cert.pem and key.pem for 127.0.0.1 and returns the
// pool that holds it: it signs itself. It is valid for an hour.
func writeCertificate(t testing.TB, dir string) *x509.CertPool {
	t.Helper()
	return writeCertificateUntil(t, dir, time.Now().Add(time.Hour))
}

// writeCertificateUntil is writeCertificate with the end of the certificate.
func writeCertificateUntil(t testing.TB, dir string, end time.Time) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "e2e"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     end,
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := writePEM(t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", cert)
	writePEM(t, filepath.Join(dir, "key.pem"), "PRIVATE KEY", private)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return roots
}

func writePEM(t testing.TB, path, kind string, der []byte) []byte {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return text
}
