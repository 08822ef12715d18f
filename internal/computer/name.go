package computer

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"holt"
)

// freeName returns a scientist's surname that is not taken, with a number if all are.
func freeName(taken func(name string) bool) string {
	names := strings.Fields(scientists)
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		if !taken(name) {
			return name
		}
	}
	for n := 2; ; n++ {
		name := fmt.Sprintf("%s-%d", names[rand.IntN(len(names))], n)
		if !taken(name) {
			return name
		}
	}
}

// ForkNames returns count names that taken does not hold: stem-1, stem-2 and so
// on. InvalidArgument if one cannot be a name.
func ForkNames(stem string, count int, taken func(name string) bool) ([]string, error) {
	var names []string
	for i := 1; len(names) < count; i++ {
		name, err := holt.ParseName(fmt.Sprintf("%s-%d", stem, i))
		if err != nil {
			return nil, err
		}
		if !taken(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// scientists are the default names: every word is a valid computer name.
const scientists = `
abel agnesi aiken airy allen altman ampere anning archimedes aristarchus
arrhenius avicenna avogadro babbage backus bacon baird banting bardeen bartik
bassi becquerel bell bernoulli berners blackburn blackwell bohr boltzmann bolyai
boole born bose boyle brahe brattain broglie brown burnell cannon
cantor carnot carson carver cauchy cavendish celsius chadwick chandra chatelet
chebyshev cockcroft codd compton conway copernicus cori coriolis coulomb cray
crick curie cuvier dalton darwin daubechies davy dedekind descartes diffie
dijkstra diophantus dirac doppler easley eddington edison ehrlich einstein elion
engelbart eratosthenes erdos euclid euler fahrenheit faraday fermat fermi feynman
fibonacci fleming foucault fourier franklin fraunhofer fresnel galileo galois
galvani gauss germain gibbs godel goeppert goldberg goodall hadamard haber
hahn haldane halley hamilton hamming harvey hawking heaviside heisenberg helmholtz
henry hermite herschel hertz hilbert hippocrates hodgkin hooke hopper hubble
humboldt huygens hypatia jackson jacobi jemison jenner johnson joliot joule
kalman kaplan karpinski kelvin kepler khayyam khorana kirchhoff knuth koch
kolmogorov kovalevskaya krebs lagrange lamarck lamarr lamport landau laplace
laue lavoisier lawrence leakey leavitt lebesgue legendre leibniz leonardo liebig
linnaeus liskov lister lobachevsky lorentz lovelace lyapunov lyell mach maiman
malpighi mandelbrot marconi margulis markov maxwell mayer mcclintock mccarthy mclean
meitner mendel mendeleev merian michelson milner minkowski minsky mirzakhani mitchell
moore morse moser napier nash nernst neumann newton nightingale nobel noether
noyce ohm oppenheimer ostrom pascal pasteur pauli pauling pavlov payne
peano penrose perlman pike planck poincare poisson priestley ptolemy pythagoras
raman ramanujan rayleigh riemann ritchie roentgen rubin rutherford sagan
salk sanger schrodinger seaborg shannon shaw shockley sinoussi snow somerville
stallman steinmetz stokes swartz swirles szilard tarski taussig tereshkova tesla
thales thompson torvalds turing tu vaughan villani virchow volta wallace
watson watt wegener weil wescoff weyl wiles wilson wing wirth
wozniak wright wu yalow yonath young yukawa zermelo zhukovsky`
