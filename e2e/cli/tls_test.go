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
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
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

// TestFleetCertificates: with the files of docs/fleet.md members answer each other, and an adapter without a certificate lacks what they have: its answers
// are partial, or refused, as its flags say.
func TestFleetCertificates(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir) // of the member, of who asks, and of what signs both
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fleet-web.yml", "fleet-http.yml"} {
		_, text, found := strings.Cut(string(page), "    # "+name+"\n")
		if !found {
			t.Fatalf("docs/fleet.md has no %s", name)
		}
		text, _, _ = strings.Cut(text, "\n\n")
		text = strings.NewReplacer("member.crt", "cert.pem", "member.key", "key.pem", "ca.crt", "cert.pem", "\n    ", "\n").Replace("\n" + text)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := harness.Emulator(t)
	member := harness.StartAdapter(t, harness.WithBuffer(b, t.TempDir()), "--fleet.listen-address=127.0.0.1:0", "--fleet.web.config.file="+filepath.Join(dir, "fleet-web.yml"))
	at := harness.NowMillis()
	harness.RemoteWrite2().MustSend(t, member.URL("/api/v1/write"), harness.SeriesOf(labels.FromStrings("__name__", "m"), harness.PointAt(at, 7)))
	query := "/api/v1/query?" + url.Values{"query": {"m"}, "time": {harness.FormatSeconds(at)}}.Encode()
	for _, tt := range []struct {
		args       []string
		status     int
		found      bool
		warnings   bool
		readStatus int
	}{
		{[]string{"--fleet.http.config.file=" + filepath.Join(dir, "fleet-http.yml")}, 200, true, false, 200},
		{nil, 200, false, true, 503},
		{[]string{"--fleet.partial-queries=deny", "--fleet.partial-reads=allow"}, 503, false, false, 200},
	} {
		reader := harness.StartAdapter(t, b, append([]string{"--mode=read"}, tt.args...)...)
		resp, err := harness.RoundTrip(t.Context(), http.MethodGet, reader.URL(query), nil, nil)
		if err != nil || resp.Status != tt.status || strings.Contains(resp.Body, `"7"]`) != tt.found || strings.Contains(resp.Body, `"warnings"`) != tt.warnings {
			t.Errorf("%q: %v, %v, want %+v", tt.args, resp, err, tt)
		}
		req, err := harness.NewRead(t.Context(), reader.URL("/api/v1/read"), prompb.ReadRequest_SAMPLES, harness.Query{Maxt: at, Matchers: harness.MustMatchers(t, "__name__", "=", "m")})
		if err != nil {
			t.Fatal(err)
		}
		read, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if read.Body.Close(); read.StatusCode != tt.readStatus {
			t.Errorf("%q: a remote read is %s, want %d", tt.args, read.Status, tt.readStatus)
		}
		if resp, err := harness.Post(t.Context(), reader.URL("/api/v1/write"), nil, nil); err != nil || resp.Status != http.StatusForbidden {
			t.Errorf("a write to an adapter that reads: %v, %v", resp, err)
		}
		reader.Terminate(t)
	}
	if code, output := harness.RunAdapter(t, harness.WithBuffer(b, t.TempDir()), "--fleet.listen-address=0.0.0.0:9202"); code == 0 || !strings.Contains(output, "give it --fleet.web.config.file") {
		t.Errorf("an open address for members without a file: %d, %s", code, output)
	}
}

// TestShutdownDelay: a stop goes on answering for a while, and is not ready.
func TestShutdownDelay(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t), "--shutdown.delay=5s")
	ended := make(chan error, 1)
	go func() { ended <- a.Stop(time.Minute) }()
	harness.Eventually(t, "it is not ready", func() error {
		if resp := harness.MustGet(t, a.URL("/-/healthy"), nil); resp.Status != http.StatusOK {
			return fmt.Errorf("%v", resp)
		}
		resp, err := harness.RoundTrip(t.Context(), http.MethodGet, a.URL("/-/ready"), nil, nil)
		if err != nil || resp.Status != http.StatusServiceUnavailable {
			return fmt.Errorf("%v, %v", resp, err)
		}
		return nil
	})
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), harness.SomeSeries()) // and takes requests
	if err := <-ended; err != nil {
		t.Error(err)
	}

	// Who cannot wait sends another signal.
	a = harness.StartAdapter(t, harness.Embedded(t), "--shutdown.delay=1h")
	if err := syscall.Kill(a.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	a.WaitLine(t, "another signal ends that")
	if err := a.Stop(time.Minute); err != nil {
		t.Error(err)
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
		DNSNames:     []string{"localhost"},
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
