package bigtable

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/bigtable"
	"github.com/go-kit/log/level"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// adviseProfile says what an app profile of a writer must be.
const adviseProfile = "conditional writes need an app profile with single-cluster routing and single-row transactions: " +
	"create one (gcloud bigtable app-profiles create NAME --instance=%s --route-to=CLUSTER --transactional-writes) and give --bigtable.app-profile=NAME to all adapters"

// profileError adds to the error of a conditional write what to do about an app profile that
// does not allow it.
func (s *Store) profileError(err error) error {
	if status.Code(err) != codes.FailedPrecondition {
		return err
	}
	return fmt.Errorf("%s (%w)", fmt.Sprintf(adviseProfile, s.instance), err)
}

// checkProfile refuses an app profile with which conditional writes fail, and reads may miss
// what was written. If the right to read the profile is missing it only warns.
func checkProfile(ctx context.Context, cfg Config) error {
	admin, err := bigtable.NewInstanceAdminClient(ctx, cfg.Project, serviceOptions(cfg)...)
	if err != nil {
		return err
	}
	defer admin.Close()
	name := cfg.AppProfile
	if name == "" {
		name = "default"
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.ReachTimeout)
	defer cancel()
	profile, err := admin.GetAppProfile(ctx, cfg.Instance, name)
	switch {
	case status.Code(err) == codes.NotFound:
		return fmt.Errorf("app profile %s does not exist in instance %s (%w)", name, cfg.Instance, err)
	case err != nil:
		level.Warn(cfg.Logger).Log("msg", "the app profile was not checked: it must have single-cluster routing and single-row transactions",
			"profile", name, "err", callError(ctx, err))
		return nil
	case profile.GetDataBoostIsolationReadOnly() != nil:
		return fmt.Errorf("app profile %s is for Data Boost, which only reads", name)
	case profile.GetMultiClusterRoutingUseAny() != nil:
		err = errors.New("routes to several clusters")
	case !profile.GetSingleClusterRouting().GetAllowTransactionalWrites():
		err = errors.New("does not allow single-row transactions")
	default:
		return nil
	}
	return fmt.Errorf("app profile %s %w; %s", name, err, fmt.Sprintf(adviseProfile, cfg.Instance))
}
