package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"

	"github.com/promtable/promtable/remote/history"
)

// commandExemplars is the subcommand that copies exemplars.
const commandExemplars = "exemplars"

// exemplarOptions are the flags of exemplars.
type exemplarOptions struct {
	deleteOptions // --match, --start, --end
	from, to      string
	httpConfig    string
	headers       map[string]string
}

func (o *options) exemplarCommand(app *kingpin.Application) {
	e := &o.exemplars
	e.headers = make(map[string]string)
	c := app.Command(commandExemplars, "Copy exemplars, which blocks, remote read and copy leave out: from Prometheus, another adapter or a file, to an adapter or a file. What is sent to an adapter is looked for there. It may be repeated: what is there already stays once.")
	c.Flag("from", "URL of a Prometheus or an adapter, such as http://localhost:9090, or a file that --to has written. - is the standard input.").Required().StringVar(&e.from)
	c.Flag("to", "URL of an adapter, such as http://localhost:9201, or a new file, which gets a line of JSON for each series and part of the time. - is the standard output.").Required().StringVar(&e.to)
	c.Flag("match", "Selector of the series, such as 'up{job=\"x\"}'. Repeatable. Default: all. It is for a URL.").StringsVar(&e.matches)
	c.Flag("start", "From this time on: RFC 3339, or seconds since 1970. Default: the first exemplar.").StringVar(&e.start)
	c.Flag("end", "Up to this time, inclusive. Default: now.").StringVar(&e.end)
	c.Flag("header", "Header of requests to the source. Repeatable.").StringMapVar(&e.headers)
	c.Flag(sourceConfigFlag, "File with how the source is asked: TLS and credentials, in the format of http_config of Prometheus.").StringVar(&e.httpConfig)
	o.asks(c, "the adapter of --to")
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// exemplarTarget returns where exemplars go, and what ends that.
func (o *options) exemplarTarget() (to history.ExemplarTarget, closeTarget func() error, err error) {
	switch e := &o.exemplars; {
	case isURL(e.to):
		asked, err := o.askedAdapter(e.to, o.tenancy.of)
		if err != nil {
			return nil, nil, err
		}
		server, err := history.NewExemplarServer(asked)
		if err != nil {
			return nil, nil, fmt.Errorf("--%s: %w", httpConfigFlag, err)
		}
		return server.Target(), func() error { return nil }, nil
	case e.to == "-":
		return history.WriteExemplars(o.out), func() error { return nil }, nil
	default:
		file, err := os.OpenFile(e.to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // it may be the one of --from
		if err != nil {
			return nil, nil, err
		}
		return history.WriteExemplars(file), func() error { return errors.Join(file.Sync(), file.Close()) }, nil
	}
}

// copyExemplars runs exemplars.
func copyExemplars(ctx context.Context, o *options, _ log.Logger) (err error) {
	e := &o.exemplars
	_, mint, maxt, err := e.parse()
	if err != nil {
		return err
	}
	isChosen := len(e.matches) > 0 || e.start != "" || e.end != ""
	if !isURL(e.from) && isChosen {
		return errors.New("--match, --start and --end choose what is asked of a URL, and a file is read whole: leave them out")
	}
	to, closeTarget, err := o.exemplarTarget()
	if err != nil {
		return err
	}
	n := 0
	err = func() (err error) {
		if isURL(e.from) {
			n, err = o.copyServed(ctx, max(mint, 0), min(maxt, o.now().UnixMilli()), to)
			return err
		}
		source := io.NopCloser(o.in)
		if e.from != "-" {
			if source, err = os.Open(e.from); err != nil {
				return err
			}
		}
		n, err = history.CopyExemplarFile(ctx, source, to)
		return errors.Join(err, source.Close())
	}()
	if err = errors.Join(err, closeTarget()); err != nil {
		return fmt.Errorf("after %d exemplars: %w", n, err)
	}
	if e.to != "-" {
		fmt.Fprintf(o.out, "%d exemplars\n", n)
	}
	return nil
}

// copyServed copies the exemplars of a server.
func (o *options) copyServed(ctx context.Context, mint, maxt int64, to history.ExemplarTarget) (n int, err error) {
	e := &o.exemplars
	asked := history.Server{URL: e.from, Headers: e.headers}
	if asked.HTTP, err = loadHTTPConfig(sourceConfigFlag, e.httpConfig); err != nil {
		return 0, err
	}
	server, err := history.NewExemplarServer(asked)
	if err != nil {
		return 0, fmt.Errorf("--%s: %w", sourceConfigFlag, err)
	}
	selectors := e.matches
	if len(selectors) == 0 {
		selectors = []string{`{__name__!=""}`}
	}
	for _, selector := range selectors {
		copied, err := server.Copy(ctx, selector, mint, maxt, to)
		if n += copied; err != nil {
			return n, err
		}
	}
	return n, nil
}
