package modelsim

import "strings"

// set makes a set of the words in a text.
func set(text string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		out[w] = true
	}
	return out
}

var stopWords = set(`a about above after again against all also am an and any are aren't as at be because been before being
below between both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each either else ever
every few for from further get got had hadn't has hasn't have haven't having he her here hers herself him himself his how however i
i'm i've if in into is isn't it it's its itself just may me might more most much must my myself neither no nor not now of off often
on once one only or other our ours ourselves out over own perhaps please same shall she should shouldn't since so some such than that
that's the their theirs them themselves then there therefore these they this those though through thus to too under until up upon us
very was wasn't we were weren't what when where whether which while who whom whose why will with within without won't would wouldn't
yes yet you your yours yourself yourselves`)

var abbreviations = set(`mr mrs ms dr prof st jr sr vs etc e.g i.e cf no nos vol fig figs pp ed eds inc ltd co corp gen col capt lt sgt
rev hon messrs jan feb mar apr jun jul aug sep sept oct nov dec u.s u.k a.m p.m approx dept est ca al`)

var negations = set(`not no never none nothing neither nor cannot without hardly barely scarcely can't cant dont wont isnt`)

var scales = map[string]float64{
	"very": 1.5, "extremely": 1.8, "really": 1.4, "absolutely": 1.7, "incredibly": 1.7, "so": 1.3, "truly": 1.4, "highly": 1.4,
	"totally": 1.5, "completely": 1.5, "deeply": 1.4, "utterly": 1.7, "too": 1.2, "quite": 1.1, "most": 1.3, "especially": 1.3,
	"slightly": 0.5, "somewhat": 0.6, "barely": 0.4, "fairly": 0.8, "rather": 0.8, "mildly": 0.5, "little": 0.6, "almost": 0.7,
}

// lexicon weighs words that carry feeling, from -3 to 3.
var lexicon = weigh(map[float64]string{
	3: `amazing awesome best brilliant delightful excellent exceptional extraordinary fabulous fantastic flawless incredible love loved
		loves magnificent marvelous marvellous outstanding perfect perfectly phenomenal splendid stunning superb terrific thrilled wonderful`,
	2: `beautiful beautifully charming cheerful comfortable delicious delight delighted enjoy enjoyed enjoyable friendly generous
		glad good gorgeous grateful great greatly happy happiness impressed impressive joy joyful kind lovely pleasant pleased pleasure
		recommend recommended reliable satisfied smooth smoothly success successful thank thankful thanks triumph win winning wonder`,
	1: `admire affordable advantage agree bright calm clean clear clever easy easily effective efficient fair fast favorite favourite
		fine fresh gain gentle helpful hope hopeful improve improved improvement interesting like liked likes nice polite praise pretty
		promising proud quick quickly safe simple smile sound strong support useful valuable warm welcome well worth`,
	-1: `abandoned annoying annoyed bland boring cheap cold complain complaint complicated concern concerned confused confusing cost
		costly cracked damaged delay delayed difficult dirty doubt dull error errors expensive fault faulty fear hard inconvenient issue
		issues lack late leak loud missing mistake mistakes noisy odd overpriced poorly problem problems rude slow slowly stale
		stuck tired unclear uncomfortable unhelpful unreliable weak worn worry worried wrong`,
	-2: `angry anger bad badly bitter broke broken collapse crash crashed crashes cruel dead death defective destroyed disappointed
		disappointing disappointment dreadful fail failed failing fails failure frustrated frustrating grief harm hate hated hurt
		ill kill killed lose loss lost miserable misery pain painful poor refund regret ruin ruined sad sadly scam sick sorrow sorry
		suffer suffered terrified trouble ugly unacceptable unhappy unfortunately unusable upset useless war waste wasted worse`,
	-3: `abysmal appalling atrocious awful catastrophe catastrophic despicable disaster disastrous disgusting hideous horrendous horrible
		horribly horrific horrified nightmare pathetic terrible terribly tragedy tragic vile worst worthless`,
})

func weigh(by map[float64]string) map[string]float64 {
	out := map[string]float64{}
	for weight, text := range by {
		for w := range strings.FieldsSeq(text) {
			out[w] = weight
		}
	}
	return out
}

var catchAll = set(`other others general misc miscellaneous none unknown default else uncategorized uncategorised`)

// commonLabels are used when a classification names no labels.
var commonLabels = []string{
	"business", "technology", "science", "health", "politics", "legal", "sports", "history", "nature", "travel", "food", "arts", "education", "other",
}

// topics lists, by the stem of a label's word, the stems of words its topic is known by.
var topics = expand([][2]string{
	{"billing invoice payment", "invoice bill charge charged payment pay paid refund price subscription card credit debit fee cost receipt account statement due amount tax overcharged bank transaction money plan renewal"},
	{"technical technology software computer support computing", "error bug crash server software computer app application login password install update version device network code program data internet system database screen website browser machine engine hardware algorithm processor memory api digital robot reset"},
	{"account login access", "account login password username sign profile email locked reset authentication security access verify register settings"},
	{"shipping delivery order logistics", "ship shipment delivery deliver package parcel courier tracking order arrive arrived warehouse carrier address late dispatch customs freight"},
	{"returns refund", "refund return exchange money back replace replacement warranty damaged defective receipt"},
	{"sales", "buy purchase price quote discount offer demo order customer deal upgrade license contract volume pricing"},
	{"legal law", "court law lawyer attorney contract clause judge legal liability agreement statute rights plaintiff defendant lawsuit trial license copyright regulation party parties justice evidence verdict appeal counsel tort jurisdiction"},
	{"sport game athletics", "team game match player score goal win season league coach ball championship race athlete tournament football cricket tennis baseball olympic runner stadium cup referee marathon swimming club training"},
	{"science physics chemistry astronomy research", "experiment theory atom energy light particle molecule scientist research physics chemistry planet star gravity observation hypothesis laboratory element cell species temperature electron measure telescope universe sun earth moon orbit wave force mass matter heat acid"},
	{"biology", "cell species organism gene plant animal evolution protein bacteria dna egg insect bird tissue ecology"},
	{"mathematics math", "number equation theorem proof geometry algebra triangle angle function sum integer prime calculate infinite"},
	{"history historical", "museum built founded old ago dug excavated archive century war king queen empire ancient revolution army battle president nation treaty emperor colony independence soldier reign medieval roman liberty declaration historian dynasty parliament castle"},
	{"nature environment wildlife animal", "forest tree river bird animal mountain sea flower leaf wind sky wood ocean lake garden plant wild winter summer spring fish insect wolf bear grass rain snow storm soil meadow bee nest pond"},
	{"cooking food recipe cuisine", "cook recipe oven flour butter sugar salt bake boil kitchen dish meal egg onion sauce stir pan bread soup taste dough minute cup spoon garlic oil pepper cheese meat vegetable simmer ingredient chop yeast tea"},
	{"travel tourism", "travel journey trip hotel flight train airport tourist map road passport ticket luggage voyage visit city island ship boat beach guide station harbor village museum sail"},
	{"health medical medicine wellness", "doctor patient disease hospital medicine symptom treatment health nurse blood pain diagnosis therapy infection vaccine surgery diet exercise sleep drug heart clinic virus fever"},
	{"finance business economy economic market", "market stock bank investment profit revenue company trade share price investor growth economy interest capital fund loan debt merchant budget business shareholder inflation quarter earnings"},
	{"politics political government", "government president election vote senate congress party minister policy parliament citizen law nation state campaign democracy republic constitution people tax"},
	{"art literature poetry fiction music culture entertainment", "poem poet novel story music song paint painting artist play theater actor film stage write verse book character concert author dance sing museum gallery melody"},
	{"education school learning", "school student teacher class learn lesson university study exam course college grade education teach pupil classroom homework"},
	{"philosophy religion", "soul god virtue truth reason moral philosophy mind wisdom faith spirit being happiness church prayer ethics knowledge"},
	{"complaint feedback", "complaint disappointed unacceptable terrible worst refund angry rude poor unhappy bad frustrated"},
	{"security privacy", "password breach attack encryption privacy hacker vulnerability malware phishing firewall leak protect secure"},
	{"weather climate", "rain storm temperature wind snow forecast sun cloud climate warm cold flood drought hurricane"},
	{"career job hr employment", "job employee employer salary hire interview resume manager work position career vacation payroll candidate office"},
})

func expand(list [][2]string) map[string][]string {
	out := map[string][]string{}
	for _, entry := range list {
		var related []string
		for w := range strings.FieldsSeq(entry[1]) {
			related = append(related, stem(w))
		}
		for name := range strings.FieldsSeq(entry[0]) {
			out[stem(name)] = append(out[stem(name)], related...)
		}
	}
	return out
}

var titles = set(`mayor mr mrs ms miss dr prof professor president king queen prince princess captain general colonel lord lady sir saint
senator judge minister chancellor emperor pope inspector sergeant`)

var connectors = set(`of de van von der den la le du da di del`)

var locative = set(`in at near from to toward towards across outside inside around`)

var organizationWords = set(`inc ltd llc corp corporation company co gmbh university college institute association committee council
ministry department agency bank court commission foundation society union group museum library senate congress parliament hospital
laboratories labs systems partners holdings industries times press academy bureau authority navy army church club team party`)

var placeWords = set(`river mountain mountains mount lake island islands street avenue road valley city county bay sea ocean desert
forest park square bridge harbor harbour cape port fort north south east west new san los santa el saint peninsula falls hills`)

var places = set(`africa america asia europe australia antarctica england scotland wales ireland britain france germany italy spain
portugal greece rome athens russia china japan india egypt turkey canada mexico brazil argentina chile peru cuba poland austria hungary
sweden norway denmark finland iceland netherlands holland belgium switzerland israel iran iraq syria kenya nigeria ethiopia morocco
vietnam korea thailand indonesia philippines pakistan london paris berlin madrid lisbon vienna prague budapest moscow beijing shanghai
tokyo delhi mumbai cairo istanbul chicago boston philadelphia washington california texas florida virginia massachusetts ohio seattle
amsterdam brussels zurich geneva munich hamburg milan venice florence naples dublin edinburgh oxford cambridge sydney melbourne toronto
montreal vancouver atlantic pacific mediterranean`)

var firstNames = set(`james john robert michael william david richard joseph thomas charles christopher daniel matthew anthony mark donald
steven paul andrew george kenneth edward henry arthur albert frank walter harold alexander benjamin samuel abraham isaac peter jack oliver
mary patricia jennifer linda elizabeth barbara susan jessica sarah karen nancy lisa margaret betty helen anna emma alice ruth grace jane
julia catherine charlotte emily marie maria sofia clara ada grace hannah rachel laura amelia eleanor rosa carlos juan pablo luis pierre
jean louis hans karl friedrich johann heinrich ludwig wolfgang galileo leonardo marco giovanni ivan mikhail vladimir ahmed mohammed ali
fatima wei ravi priya yuki hiroshi sherlock ishmael`)

var notNames = set(`monday tuesday wednesday thursday friday saturday sunday january february march april june july august september
october november december dear hello hi thanks regards chapter section part book volume figure table note yesterday today tomorrow
english french german latin greek american british christian roman european god sir madam nothing everything something someone many
several two three four five six seven eight nine ten first second third last next let see add take make put mix pour bring ok okay
although unless despite instead meanwhile finally later soon well oh ah invoice total subject`)
