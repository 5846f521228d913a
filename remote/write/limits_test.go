package write_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
	"github.com/promtable/promtable/series/seriestest"
)

// block is the compressed body of a write of about size bytes, and how large it
// is when decompressed.
func block(t testing.TB, size int) (compressed []byte, decoded int) {
	body := wiretest.V1(t, wiretest.V1Series(make([]prompb.Sample, size/2), "__name__", "up"))
	return snappy.Encode(nil, body), len(body)
}

// TestWriteBytesInFlight: as many writes run as their decompressed bytes allow;
// the next waits ten seconds, and one that is larger than all of it has it to
// itself.
func TestWriteBytesInFlight(t *testing.T) {
	small, size := block(t, 1000)
	large, _ := block(t, 10_000)
	for _, test := range []struct {
		name  string
		total int
		body  []byte
		runs  int64 // of three that begin together
	}{
		{"all fit", 3 * size, small, 3},
		{"two fit", 3*size - 1, small, 2},
		{"one fits", size, small, 1},
		{"larger than the bound", size, large, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int64
				leave := make(chan struct{})
				eng := &remotetest.Engine{OnAppend: func(context.Context, []ingest.Series) (int, error) {
					running.Add(1)
					<-leave
					return 1, nil
				}}
				h := remote.New(remote.Config{Engine: eng, Now: time.Now, MaxWriteBytes: test.total})
				var answers []<-chan *httptest.ResponseRecorder
				for range 3 {
					answers = append(answers, remotetest.Begin(h, http.MethodPost, "/write", bytes.NewReader(test.body)))
					synctest.Wait()
				}
				if n := running.Load(); n != test.runs {
					t.Errorf("%d writes run, want %d", n, test.runs)
				}
				time.Sleep(10*time.Second + time.Millisecond)
				synctest.Wait()
				for _, answer := range answers[min(test.runs, running.Load()):] {
					remotetest.WantBusy(t, <-answer)
				}
				close(leave)
				for _, answer := range answers[:running.Load()] {
					if w := <-answer; w.Code != http.StatusNoContent {
						t.Errorf("status %d %q", w.Code, w.Body)
					}
				}
				// All of it has been given back.
				if w := <-remotetest.Begin(h, http.MethodPost, "/write", bytes.NewReader(large)); w.Code != http.StatusNoContent {
					t.Errorf("afterwards: status %d %q", w.Code, w.Body)
				}
			})
		})
	}
}

// TestWriteBytesGivenBack: whatever ends a write, it keeps nothing.
func TestWriteBytesGivenBack(t *testing.T) {
	good, size := block(t, 1000)
	for _, test := range []struct {
		name   string
		body   []byte
		err    error
		status int
	}{
		{"stored", good, nil, 204},
		{"store fails", good, remotetest.ErrStore, 503},
		{"corrupt block", append(bytes.Clone(good[:len(good)-1]), 0xff), nil, 400},
		{"corrupt message", snappy.Encode(nil, bytes.Repeat([]byte{7}, size)), nil, 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			eng := &remotetest.Engine{OnAppend: func(context.Context, []ingest.Series) (int, error) { return 1, test.err }}
			h := remote.New(remote.Config{Engine: eng, Now: time.Now, MaxWriteBytes: size, WriteTimeout: 5 * time.Second})
			for range 3 {
				if w := <-remotetest.Begin(h, http.MethodPost, "/write", bytes.NewReader(test.body)); w.Code != test.status {
					t.Fatalf("status %d %q, want %d", w.Code, w.Body, test.status)
				}
			}
		})
	}
}

// TestWriteBytesArriving: large bodies that are on their way are bounded as
// well; small ones do not wait for them.
func TestWriteBytesArriving(t *testing.T) {
	noise := make([]byte, 3<<20)
	rnd := seriestest.NewRand(t)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	small, _ := block(t, 1000)
	synctest.Test(t, func(t *testing.T) {
		h := remote.New(remote.Config{Engine: &remotetest.Engine{}, Now: time.Now, MaxWriteBytes: 4 << 20})
		body, arriving := io.Pipe()
		first := remotetest.Begin(h, http.MethodPost, "/write", body)
		if _, err := arriving.Write(noise[:2<<20]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		second := remotetest.Begin(h, http.MethodPost, "/write", bytes.NewReader(noise))
		if w := <-remotetest.Begin(h, http.MethodPost, "/write", bytes.NewReader(small)); w.Code != http.StatusNoContent {
			t.Errorf("small: status %d %q", w.Code, w.Body)
		}
		remotetest.WantBusy(t, <-second)
		arriving.Close()
		<-first
		if w := <-remotetest.Begin(h, http.MethodPost, "/write", bytes.NewReader(noise)); w.Code != http.StatusBadRequest {
			t.Errorf("afterwards: status %d %q, want 400", w.Code, w.Body)
		}
	})
}

// TestWriteOneSeriesMemory: the samples of a large series are not copied as
// they become more.
func TestWriteOneSeriesMemory(t *testing.T) {
	const samples = 1 << 20
	all := []prompb.TimeSeries{wiretest.V1Series(make([]prompb.Sample, samples), "__name__", "up")}
	for _, test := range []struct {
		name, contentType string
		body              []byte
	}{
		{"1.0", remotetest.TypeV1, wiretest.V1(t, all...)},
		{"2.0", remotetest.TypeV2, wiretest.Marshal(t, wiretest.ToV2(all))},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := 0
			eng := &remotetest.Engine{OnAppend: func(_ context.Context, batch []ingest.Series) (int, error) {
				got = len(batch[0].Samples)
				return got, nil
			}}
			h := remote.New(remote.Config{Engine: eng, Now: time.Now})
			compressed := snappy.Encode(nil, test.body)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			w := remotetest.ServeOnce(h, "/write", test.contentType, compressed)
			runtime.ReadMemStats(&after)
			if w.Code != http.StatusNoContent || got != samples {
				t.Fatalf("status %d %q, %d samples", w.Code, w.Body, got)
			}
			limit := uint64(24*samples + len(test.body) + 4*len(compressed) + 1<<20)
			if used := after.TotalAlloc - before.TotalAlloc; used > limit {
				t.Errorf("%d bytes allocated for a body of %d, want no more than %d", used, len(test.body), limit)
			}
		})
	}
}
