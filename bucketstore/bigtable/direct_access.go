//go:build !disable_grpc_modules

package bigtable

// DirectAccessBuilt says whether the program has the resolver and the balancers of gRPC that
// direct access needs. The build tag disable_grpc_modules leaves them out.
const DirectAccessBuilt = true
