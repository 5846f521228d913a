package engine

import (
	"context"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/engine/ha"
	"github.com/promtable/promtable/remote/ingest"
)

// deduplicate returns the part of batch that is to be stored, without the replica
// label, and counts the rest, which comes from replicas that are not elected. A
// series whose labels are invalid is rejected. batch stays as it is. After an error
// no sample may be acknowledged.
func (e *Engine) deduplicate(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (kept []ingest.Series, deduplicated ingest.Stored, err error) {
	if e.elections == nil {
		return batch, deduplicated, nil
	}
	kept = make([]ingest.Series, 0, len(batch))
	builder := labels.NewBuilder(labels.EmptyLabels())
	var last ha.Verdict
	for i := range batch {
		s := batch[i]
		s.Labels = s.Labels.WithoutEmpty()
		replica := s.Labels.Get(e.cfg.HA.ReplicaLabel)
		if replica == "" {
			kept = append(kept, s)
			continue
		}
		cluster := s.Labels.Get(e.cfg.HA.ClusterLabel)
		if err := checkReplica(s.Labels, cluster, replica); err != nil {
			rejected.Add(ingest.ReasonLabels, s.Size(), err)
			continue
		}
		if cluster != "" {
			if last, err = e.elections.Elect(ctx, cluster, replica, last); err != nil {
				return nil, ingest.Stored{}, err
			}
			if !last.Elected {
				deduplicated = deduplicated.Plus(s.Counts())
				last.CountDeduplicated(s.Size())
				continue
			}
		}
		builder.Reset(s.Labels)
		s.Labels = builder.Del(e.cfg.HA.ReplicaLabel).Labels()
		kept = append(kept, s)
	}
	return kept, deduplicated, nil
}

// checkReplica says what is wrong with the labels of a series that a replica
// has sent, if anything is.
func checkReplica(ls labels.Labels, cluster, replica string) error {
	if _, err := checkLabels(ls); err != nil {
		return err
	}
	if n := max(len(cluster), len(replica)); n > ha.MaxName {
		return labelsError{ls, fmt.Sprintf("the name of its cluster or replica has %d bytes, the limit is %d", n, ha.MaxName)}
	}
	return nil
}
